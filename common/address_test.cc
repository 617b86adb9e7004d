#include "common/address.h"

#include <string>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

class ReadableAddress : public testing::TestWithParam<Address> {};

TEST_P(ReadableAddress, SurvivesTheRoundTrip) {
  const absl::StatusOr<Address> read = ParseAddress(FormatAddress(GetParam()));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->host, GetParam().host);
  EXPECT_EQ(read->port, GetParam().port);
}

INSTANTIATE_TEST_SUITE_P(Addresses, ReadableAddress,
                         testing::Values(Address{"127.0.0.1", 1}, Address{"ps-0.job_1.svc", 7000},
                                         Address{"::1", 65535}, Address{"fe80::1%eth0", 80}, Address{"::", 7}));

TEST(Address, Ipv6IsPrintedInBrackets) { EXPECT_EQ(FormatAddress({"::1", 7000}), "[::1]:7000"); }

TEST(Address, PortZeroIsForListening) {
  EXPECT_THAT(ParseAddress("0.0.0.0:0", PortZero::kAllowed), IsOk());
  EXPECT_THAT(ParseAddress("0.0.0.0:0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a port from 1 to 65535, got \"0\"")));
}

struct BadAddress {
  const char* text;
  const char* message;
};

class UnreadableAddress : public testing::TestWithParam<BadAddress> {};

TEST_P(UnreadableAddress, IsRefusedWithTheReason) {
  EXPECT_THAT(ParseAddress(GetParam().text),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Addresses, UnreadableAddress,
    testing::Values(BadAddress{"", "address \"\": expected HOST:PORT"},
                    BadAddress{"localhost", "address \"localhost\": expected HOST:PORT"},
                    BadAddress{"localhost:", "expected a port from 1 to 65535, got \"\""},
                    BadAddress{"localhost:70000", "got \"70000\""}, BadAddress{"localhost:-1", "got \"-1\""},
                    BadAddress{"localhost:+80", "got \"+80\""}, BadAddress{"localhost: 80", "got \" 80\""},
                    BadAddress{"localhost:80x", "got \"80x\""},
                    BadAddress{"localhost:99999999999999999999", "got \"99999999999999999999\""},
                    BadAddress{":80", "\"\" is not a host name"}, BadAddress{"a b:80", "\"a b\" is not a host name"},
                    BadAddress{"http://x:80", "an IPv6 host in brackets as in [::1]:7000"},
                    BadAddress{"::1:80", "an IPv6 host in brackets as in [::1]:7000"},
                    BadAddress{"[::1]", "expected [IPV6]:PORT"}, BadAddress{"[::1]80", "expected [IPV6]:PORT"},
                    BadAddress{"[localhost]:80", "\"localhost\" is not an IPv6 address"}));

TEST(Address, LongTextIsNotRepeatedWhole) {
  EXPECT_LT(ParseAddress(std::string(100000, 'x')).status().message().size(), 1000u);
}

}  // namespace
}  // namespace lagrange

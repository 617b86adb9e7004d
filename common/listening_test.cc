#include "common/listening.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Listens on a port of 127.0.0.1 that the kernel picks.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ok_ = bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0 && listen(fd_, 1) == 0 &&
          getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { close(fd_); }
  bool ok() const { return ok_; }
  int port() const { return port_; }

 private:
  const int fd_;
  bool ok_ = false;
  int port_ = 0;
};

TEST(CheckCanListen, RefusesAPortThatAnotherListensOn) {
  const Listener other;
  ASSERT_TRUE(other.ok());
  const Address address{"127.0.0.1", other.port()};
  EXPECT_THAT(CheckCanListen(address), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                AllOf(HasSubstr(FormatAddress(address)), HasSubstr("in use"))));
}

TEST(CheckCanListen, RefusesEveryInterfaceWhenOneIsTaken) {
  const Listener other;
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(CheckCanListen({"0.0.0.0", other.port()}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(CheckCanListen, LeavesThePortFree) {
  int port = 0;
  {
    const Listener earlier;
    ASSERT_TRUE(earlier.ok());
    port = earlier.port();
  }
  EXPECT_THAT(CheckCanListen({"127.0.0.1", port}), IsOk());
  EXPECT_THAT(CheckCanListen({"127.0.0.1", port}), IsOk());
}

TEST(CheckCanListen, RefusesAnAddressOfAnotherMachine) {
  // TEST-NET-1 of RFC 5737 belongs to nobody.
  EXPECT_THAT(CheckCanListen({"192.0.2.1", 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("192.0.2.1:0")));
}

TEST(CheckCanListen, RefusesANameWithoutAddress) {
  EXPECT_THAT(CheckCanListen({"nope.invalid", 0}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("name not resolved")));
}

TEST(LocalHostTowards, ALoopbackPeerIsReachedFromLoopback) {
  EXPECT_THAT(LocalHostTowards({"127.0.0.1", 7000}), IsOkAndHolds("127.0.0.1"));
}

TEST(LocalHostTowards, SaysThatANameIsNotResolved) {
  EXPECT_THAT(LocalHostTowards({"nope.invalid", 7000}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("name not resolved")));
}

TEST(IsWildcard, IsEveryInterfaceOfEitherFamily) {
  EXPECT_TRUE(IsWildcard({"0.0.0.0", 1}));
  EXPECT_TRUE(IsWildcard({"::", 1}));
  EXPECT_FALSE(IsWildcard({"127.0.0.1", 1}));
}

}  // namespace
}  // namespace lagrange

#include "common/address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"

namespace lagrange {
namespace {

// Of a DNS name (RFC 1035, 2.3.4) in presentation format.
constexpr size_t kMaxHostLength = 253;
// Of what an error message repeats.
constexpr size_t kMaxShownLength = 300;

absl::Status Bad(absl::string_view text, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("address \"", text.substr(0, kMaxShownLength), "\": ", problem));
}

bool IsIpv6(absl::string_view host) {
  const std::string address(host.substr(0, host.find('%')));
  in6_addr ignored;
  return inet_pton(AF_INET6, address.c_str(), &ignored) == 1;
}

bool IsName(absl::string_view host) {
  return !host.empty() && host.size() <= kMaxHostLength && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
}

absl::StatusOr<int> ParsePort(absl::string_view text, absl::string_view port, PortZero port_zero) {
  const int smallest = port_zero == PortZero::kAllowed ? 0 : 1;
  const bool digits = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit);
  int value = 0;
  if (!digits || !absl::SimpleAtoi(port, &value) || value < smallest || value > 65535) {
    return Bad(text, absl::StrCat("expected a port from ", smallest, " to 65535, got \"",
                                  port.substr(0, kMaxShownLength), "\""));
  }
  return value;
}

}  // namespace

absl::StatusOr<Address> ParseAddress(absl::string_view text, PortZero port_zero) {
  absl::string_view host = text;
  absl::string_view port;
  if (absl::ConsumePrefix(&host, "[")) {
    const size_t close = host.find("]:");
    if (close == absl::string_view::npos) return Bad(text, "expected [IPV6]:PORT");
    port = host.substr(close + 2);
    host = host.substr(0, close);
    if (!IsIpv6(host)) return Bad(text, absl::StrCat("\"", host, "\" is not an IPv6 address"));
  } else {
    const size_t colon = host.find(':');
    if (colon == absl::string_view::npos) return Bad(text, "expected HOST:PORT");
    if (colon != host.rfind(':')) return Bad(text, "expected HOST:PORT, an IPv6 host in brackets as in [::1]:7000");
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
    if (!IsName(host)) return Bad(text, absl::StrCat("\"", host, "\" is not a host name or IPv4 address"));
  }
  ASSIGN_OR_RETURN(const int port_number, ParsePort(text, port, port_zero));
  return Address{std::string(host), port_number};
}

std::string FormatAddress(const Address& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return absl::StrCat(brackets ? "[" : "", address.host, brackets ? "]:" : ":", address.port);
}

}  // namespace lagrange

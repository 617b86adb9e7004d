// HOST:PORT as people write it: "ps-0.job:7000", "127.0.0.1:7000", "[::1]:7000".
//
// Pure: nothing is resolved. Thread-safe.

#ifndef COMMON_ADDRESS_H_
#define COMMON_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lagrange {

struct Address {
  // Without brackets.
  std::string host;
  // 0 to 65535.
  int port = 0;
};

// Whether port 0, the kernel's choice, is an answer: for listening it is, for connecting it isn't.
enum class PortZero { kRefused, kAllowed };

// InvalidArgument names the text, what is wrong and what was expected.
absl::StatusOr<Address> ParseAddress(absl::string_view text, PortZero port_zero = PortZero::kRefused);

// What ParseAddress reads; an IPv6 host comes in brackets.
std::string FormatAddress(const Address& address);

}  // namespace lagrange

#endif  // COMMON_ADDRESS_H_

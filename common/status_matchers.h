// Matchers of absl::Status and StatusOr for tests, under newer abseil's names: IsOk(), IsOkAndHolds(m), StatusIs(code),
// StatusIs(code, message matcher).

#ifndef COMMON_STATUS_MATCHERS_H_
#define COMMON_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

namespace lagrange {
namespace internal {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace internal

MATCHER(IsOk, negation ? "isn't OK" : "is OK") {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return status.ok();
}

MATCHER_P(StatusIs, code, "has the code " + absl::StatusCodeToString(code)) {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code;
}

MATCHER_P2(StatusIs, code, message, "has the code " + absl::StatusCodeToString(code) + " and a message that matches") {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code && testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return testing::ExplainMatchResult(value, *arg, result_listener);
}

}  // namespace lagrange

#endif  // COMMON_STATUS_MATCHERS_H_

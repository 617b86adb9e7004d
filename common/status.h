// absl::Status: the two macros that newer abseil has, and adding context on the way up.

#ifndef COMMON_STATUS_H_
#define COMMON_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lagrange {

// The same code and payloads, "context: message". An OK status stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status annotated(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&annotated](absl::string_view url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

}  // namespace lagrange

#define RETURN_IF_ERROR(expression)                             \
  do {                                                          \
    if (::absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                           \
    }                                                           \
  } while (false)

#define LAGRANGE_STATUS_CONCAT_INNER_(a, b) a##b
#define LAGRANGE_STATUS_CONCAT_(a, b) LAGRANGE_STATUS_CONCAT_INNER_(a, b)

// ASSIGN_OR_RETURN(auto value, FunctionThatReturnsStatusOr());
#define ASSIGN_OR_RETURN(declaration, expression) \
  LAGRANGE_ASSIGN_OR_RETURN_(LAGRANGE_STATUS_CONCAT_(status_or_, __LINE__), declaration, expression)

#define LAGRANGE_ASSIGN_OR_RETURN_(holder, declaration, expression) \
  auto holder = (expression);                                       \
  if (!holder.ok()) return std::move(holder).status();              \
  declaration = *std::move(holder)

#endif  // COMMON_STATUS_H_

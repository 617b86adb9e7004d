// CHECK: a bug of ours, never an input. Debian's abseil has no absl/log; the names are its, so that this can go later.
//
// A failed CHECK prints file, line and condition to stderr and aborts. It is never reachable from a job file, a data
// file, a peer or a disk: those give an absl::Status.

#ifndef COMMON_CHECK_H_
#define COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace lagrange::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace lagrange::internal

#define CHECK(condition)                                                 \
  do {                                                                   \
    if (!(condition)) {                                                  \
      ::lagrange::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                    \
  } while (false)

#endif  // COMMON_CHECK_H_

// Initial values of variables. They depend on (job seed, variable name, element) alone, so any ps can make any range.
//
// Fans of a shape, as Keras counts them: [in, out] is (in, out); [n] is (n, n); a scalar (1, 1); of more dimensions the
// leading ones multiply both. Thread-safe: pure functions that allocate nothing.

#ifndef PS_CORE_INITIALIZER_H_
#define PS_CORE_INITIALIZER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

// InvalidArgument names variable, option, range and what it got; also when no kind is set.
absl::Status ValidateInitializer(const VariableSpec& variable);

// Elements [first_element, first_element + values.size()) of the variable in row-major order.
// REQUIRES: ValidateInitializer(variable) is OK; the range lies in the variable.
void FillInitialValues(const VariableSpec& variable, uint64_t job_seed, int64_t first_element,
                       absl::Span<float> values);

}  // namespace lagrange

#endif  // PS_CORE_INITIALIZER_H_

// Matrix products of dense row-major float32 matrices.
//
// The contract of every backend. This one takes host pointers; a backend for a device takes its stream as a first
// argument and pointers of the device, and keeps the rest. Thread-safe: pure functions, and SetComputeThreads concerns
// its calling thread alone. Owns nothing; the library beneath may allocate scratch memory in a call.
// Sizes are counts of elements, index arithmetic is in int64. Internal when the library beneath refuses.

#ifndef KERNELS_MATMUL_H_
#define KERNELS_MATMUL_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lagrange::kernels {

enum class Transpose { kNo, kYes };
enum class Accumulate { kNo, kYes };

// c [rows, cols] = op(a) op(b), or with accumulate c += op(a) op(b).
struct MatMulOptions {
  int64_t rows = 0;
  int64_t cols = 0;
  // What is summed over. 0 gives a product of zeros.
  int64_t depth = 0;
  // With kYes a is stored as [depth, rows], b as [cols, depth].
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
};

// a: [rows, depth], b: [depth, cols], c: [rows, cols], each without gaps; c aliases neither a nor b. Without accumulate
// c is not read. Accumulates in float32, in an order that depends on the sizes and the number of threads alone, so the
// same inputs give the same bits. Empty matrices may be null. REQUIRES: sizes >= 0.
absl::Status MatMul(const MatMulOptions& options, const float* a, const float* b, float* c);

// How many threads a product called from this thread may use. 1 until it is set: a worker shares its machine with a ps
// and other workers, whose steps it would only lengthen. REQUIRES: count >= 1.
void SetComputeThreads(int count);

}  // namespace lagrange::kernels

#endif  // KERNELS_MATMUL_H_

// What a network does between its matrix products, on dense row-major float32.
//
// The contract of every backend, as matmul.h says. Thread-safe: pure functions; these never allocate and never fail,
// the Status is for backends that launch. Each is bound by memory: bytes moved are stated. The same inputs give the
// same bits. Counts are elements, >= 0; empty arrays may be null.

#ifndef KERNELS_POINTWISE_H_
#define KERNELS_POINTWISE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lagrange::kernels {

// x [rows, cols] += bias [cols] in each row. bias doesn't alias x. 8 rows cols bytes.
absl::Status AddBias(int64_t rows, int64_t cols, const float* bias, float* x);

// y [n] = max(x [n], 0); NaN stays NaN, so that a step that went wrong is seen. y is x or disjoint from it. 8 n bytes.
absl::Status Relu(int64_t n, const float* x, float* y);

// dx [n] = dy [n] where y [n] > 0 (or NaN), else 0; y is Relu's result. dx is dy or disjoint from it; y is disjoint
// from dx. 12 n bytes.
absl::Status ReluGradient(int64_t n, const float* y, const float* dy, float* dx);

// sums [cols] = sum over the rows of x [rows, cols], added in double from the first row to the last, rounded once. sums
// doesn't alias x. 4 rows cols bytes.
absl::Status SumRows(int64_t rows, int64_t cols, const float* x, float* sums);

}  // namespace lagrange::kernels

#endif  // KERNELS_POINTWISE_H_

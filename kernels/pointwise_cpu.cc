// Plain loops that the compiler vectorizes. Bias and ReLU stay two passes: a layer's output of a batch lies in L2, and
// both together take 2% of the time of the matrix product before them.

#include <algorithm>

#include "kernels/pointwise.h"

namespace lagrange::kernels {
namespace {

// Columns that SumRows adds at a time: their sums in double fill half a KiB of stack, their row pieces whole lines.
constexpr int64_t kColumnTile = 64;

void SumTile(int64_t rows, int64_t cols, int64_t width, const float* x, float* sums) {
  double totals[kColumnTile] = {};
  for (int64_t row = 0; row < rows; ++row) {
    const float* piece = x + row * cols;
    for (int64_t i = 0; i < width; ++i) totals[i] += static_cast<double>(piece[i]);
  }
  for (int64_t i = 0; i < width; ++i) sums[i] = static_cast<float>(totals[i]);
}

}  // namespace

absl::Status AddBias(int64_t rows, int64_t cols, const float* __restrict bias, float* __restrict x) {
  for (int64_t row = 0; row < rows; ++row) {
    float* out = x + row * cols;
    for (int64_t i = 0; i < cols; ++i) out[i] += bias[i];
  }
  return absl::OkStatus();
}

absl::Status Relu(int64_t n, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
  return absl::OkStatus();
}

absl::Status ReluGradient(int64_t n, const float* y, const float* dy, float* dx) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = dy[i];
    dx[i] = y[i] <= 0.0f ? 0.0f : gradient;
  }
  return absl::OkStatus();
}

absl::Status SumRows(int64_t rows, int64_t cols, const float* x, float* sums) {
  for (int64_t begin = 0; begin < cols; begin += kColumnTile) {
    SumTile(rows, cols, std::min(kColumnTile, cols - begin), x + begin, sums + begin);
  }
  return absl::OkStatus();
}

}  // namespace lagrange::kernels

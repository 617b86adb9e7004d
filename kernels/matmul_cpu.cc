// oneDNN's sgemm: on the shapes of a small network it beat OpenBLAS at every one (docs/performance.md).

#include <dnnl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/matmul.h"

// oneDNN takes its thread count from OpenMP. Declared here because omp.h belongs to one compiler, these two to all.
extern "C" {
void omp_set_num_threads(int count);
int omp_get_max_threads(void);
}

namespace lagrange::kernels {
namespace {

// Kept beside OpenMP's own value of this thread, which begins at the number of cores.
thread_local int compute_threads = 1;

}  // namespace

void SetComputeThreads(int count) {
  CHECK(count >= 1);
  compute_threads = count;
}

absl::Status MatMul(const MatMulOptions& options, const float* a, const float* b, float* c) {
  const int64_t rows = options.rows, cols = options.cols, depth = options.depth;
  const bool accumulate = options.accumulate == Accumulate::kYes;
  if (rows == 0 || cols == 0) return absl::OkStatus();
  if (depth == 0) {
    if (!accumulate) std::fill(c, c + rows * cols, 0.0f);
    return absl::OkStatus();
  }
  if (omp_get_max_threads() != compute_threads) omp_set_num_threads(compute_threads);
  const bool transpose_a = options.transpose_a == Transpose::kYes;
  const bool transpose_b = options.transpose_b == Transpose::kYes;
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', rows, cols, depth, 1.0f, a,
                 transpose_a ? rows : depth, b, transpose_b ? depth : cols, accumulate ? 1.0f : 0.0f, c, cols);
  if (status != dnnl_success) {
    return absl::InternalError(absl::StrCat("matrix product [", rows, ", ", depth, "] x [", depth, ", ", cols,
                                            "]: expected oneDNN to succeed, got its status ",
                                            static_cast<int>(status)));
  }
  return absl::OkStatus();
}

}  // namespace lagrange::kernels

// Softmax, cross-entropy against integer labels, and the gradient of its mean, in one pass over the logits.
//
// The contract of every backend, as matmul.h says. Thread-safe: pure function; never allocates. Numerically safe: each
// row's largest logit is taken off before exp, so that finite logits give a finite loss and gradient. A row with NaN or
// +infinity gives a NaN loss and gradient. The same inputs give the same bits.

#ifndef KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/status/status.h"

namespace lagrange::kernels {

struct CrossEntropySums {
  // Sum over the rows of -log softmax(logits)[label], accumulated in double, in order of the rows.
  double loss = 0;
  // Rows whose largest logit is the label's; of equal ones the lowest class counts.
  int64_t correct_count = 0;
};

// logits: [rows, classes]; labels: [rows]. gradient: [rows, classes] of loss / rows, written; null when it isn't
// wanted; may be logits, else disjoint from it. Reads 4 and writes 4 bytes an element; bound by exp. REQUIRES: rows >=
// 0, classes >= 1, each label in [0, classes).
absl::Status SoftmaxCrossEntropy(int64_t rows, int64_t classes, const float* logits, const int32_t* labels,
                                 CrossEntropySums* sums, float* gradient);

}  // namespace lagrange::kernels

#endif  // KERNELS_SOFTMAX_CROSS_ENTROPY_H_

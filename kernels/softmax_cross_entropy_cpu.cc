// exp in float32 (its argument is at most 0, its result at most 1), sums in double: the loss of a row is then exact to
// a few units of float32's last place, whatever the number of classes.

#include <cmath>

#include "kernels/softmax_cross_entropy.h"

namespace lagrange::kernels {
namespace {

int64_t LargestIndex(int64_t n, const float* x) {
  int64_t largest = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (x[i] > x[largest]) largest = i;
  }
  return largest;
}

// The row's loss. exponentials may be logits.
double RowWithGradient(int64_t classes, int32_t label, float largest, double weight, const float* logits,
                       float* exponentials) {
  const double label_logit = static_cast<double>(logits[label]) - static_cast<double>(largest);
  double total = 0;
  for (int64_t i = 0; i < classes; ++i) {
    exponentials[i] = std::exp(logits[i] - largest);
    total += static_cast<double>(exponentials[i]);
  }
  const double scale = weight / total;
  const double label_gradient = (static_cast<double>(exponentials[label]) - total) * scale;
  const float scale_of_others = static_cast<float>(scale);
  for (int64_t i = 0; i < classes; ++i) exponentials[i] *= scale_of_others;
  exponentials[label] = static_cast<float>(label_gradient);
  return std::log(total) - label_logit;
}

double RowLoss(int64_t classes, int32_t label, float largest, const float* logits) {
  double total = 0;
  for (int64_t i = 0; i < classes; ++i) total += static_cast<double>(std::exp(logits[i] - largest));
  return std::log(total) - (static_cast<double>(logits[label]) - static_cast<double>(largest));
}

}  // namespace

absl::Status SoftmaxCrossEntropy(int64_t rows, int64_t classes, const float* logits, const int32_t* labels,
                                 CrossEntropySums* sums, float* gradient) {
  *sums = CrossEntropySums();
  const double weight = rows == 0 ? 0.0 : 1.0 / static_cast<double>(rows);
  for (int64_t row = 0; row < rows; ++row) {
    const float* x = logits + row * classes;
    const int64_t largest = LargestIndex(classes, x);
    if (largest == labels[row]) ++sums->correct_count;
    sums->loss += gradient == nullptr
                      ? RowLoss(classes, labels[row], x[largest], x)
                      : RowWithGradient(classes, labels[row], x[largest], weight, x, gradient + row * classes);
  }
  return absl::OkStatus();
}

}  // namespace lagrange::kernels

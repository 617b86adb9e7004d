#include "kernels/softmax_cross_entropy.h"

#include <memory>

#include "common/status.h"
#include "worker/model/loss.h"

namespace lagrange {
namespace {

class SoftmaxCrossEntropy : public Loss {
 public:
  absl::Status Compute(int64_t examples, int64_t classes, const float* outputs, const int32_t* labels,
                       BatchMetrics* metrics, float* gradient) const override {
    kernels::CrossEntropySums sums;
    RETURN_IF_ERROR(kernels::SoftmaxCrossEntropy(examples, classes, outputs, labels, &sums, gradient));
    metrics->example_count = examples;
    metrics->loss_sum = sums.loss;
    metrics->correct_count = sums.correct_count;
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Loss>> MakeSoftmaxCrossEntropy(const LossSpec&) {
  return std::make_unique<SoftmaxCrossEntropy>();
}

const LossRegistration kSoftmaxCrossEntropy{"softmax_cross_entropy", MakeSoftmaxCrossEntropy};

}  // namespace
}  // namespace lagrange

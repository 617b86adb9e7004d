#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/update_rules.h"
#include "ps/optimizer/optimizer.h"

namespace lagrange {
namespace {

class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptimizer& options)
      : learning_rate_(options.learning_rate()),
        beta1_(options.beta1()),
        beta2_(options.beta2()),
        epsilon_(options.epsilon()) {}

  const std::vector<SlotSpec>& slots() const override { return slots_; }

  void Apply(uint64_t step, const UpdateSpans& spans) const override {
    const kernels::AdamStep numbers = kernels::MakeAdamStep(learning_rate_, beta1_, beta2_, epsilon_, step);
    kernels::AdamUpdate(spans.in.size(), numbers, spans.gradient.data(), spans.in.data(), spans.out.data(),
                        spans.slots_in[0].data(), spans.slots_out[0].data(), spans.slots_in[1].data(),
                        spans.slots_out[1].data());
  }

 private:
  const float learning_rate_;
  const float beta1_;
  const float beta2_;
  const float epsilon_;
  const std::vector<SlotSpec> slots_ = {{"m", 0.0f}, {"v", 0.0f}};
};

absl::StatusOr<std::unique_ptr<Optimizer>> MakeAdam(const OptimizerSpec& spec) {
  const AdamOptimizer& options = spec.adam();
  RETURN_IF_ERROR(CheckLearningRate(options.learning_rate(), "optimizer.adam.learning_rate"));
  RETURN_IF_ERROR(CheckDecay(options.beta1(), "optimizer.adam.beta1"));
  RETURN_IF_ERROR(CheckDecay(options.beta2(), "optimizer.adam.beta2"));
  if (!std::isfinite(options.epsilon()) || options.epsilon() < 0.0f) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer.adam.epsilon: expected a finite number of at least 0, got ", options.epsilon()));
  }
  return std::make_unique<Adam>(options);
}

const Registration<OptimizerFactory> kAdam{"adam", MakeAdam};

}  // namespace
}  // namespace lagrange

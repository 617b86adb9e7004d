#include "common/status.h"
#include "kernels/update_rules.h"
#include "ps/optimizer/optimizer.h"

namespace lagrange {
namespace {

class Momentum : public Optimizer {
 public:
  explicit Momentum(const MomentumOptimizer& options)
      : learning_rate_(options.learning_rate()), momentum_(options.momentum()), nesterov_(options.nesterov()) {}

  const std::vector<SlotSpec>& slots() const override { return slots_; }

  void Apply(uint64_t, const UpdateSpans& spans) const override {
    kernels::MomentumUpdate(spans.in.size(), learning_rate_, momentum_, nesterov_, spans.gradient.data(),
                            spans.in.data(), spans.out.data(), spans.slots_in[0].data(), spans.slots_out[0].data());
  }

 private:
  const float learning_rate_;
  const float momentum_;
  const bool nesterov_;
  const std::vector<SlotSpec> slots_ = {{"momentum", 0.0f}};
};

absl::StatusOr<std::unique_ptr<Optimizer>> MakeMomentum(const OptimizerSpec& spec) {
  RETURN_IF_ERROR(CheckLearningRate(spec.momentum().learning_rate(), "optimizer.momentum.learning_rate"));
  RETURN_IF_ERROR(CheckDecay(spec.momentum().momentum(), "optimizer.momentum.momentum"));
  return std::make_unique<Momentum>(spec.momentum());
}

const Registration<OptimizerFactory> kMomentum{"momentum", MakeMomentum};

}  // namespace
}  // namespace lagrange

#include "common/status.h"
#include "kernels/update_rules.h"
#include "ps/optimizer/optimizer.h"

namespace lagrange {
namespace {

class Sgd : public Optimizer {
 public:
  explicit Sgd(float learning_rate) : learning_rate_(learning_rate) {}

  const std::vector<SlotSpec>& slots() const override { return slots_; }

  void Apply(uint64_t, const UpdateSpans& spans) const override {
    kernels::SgdUpdate(spans.in.size(), learning_rate_, spans.gradient.data(), spans.in.data(), spans.out.data());
  }

 private:
  const float learning_rate_;
  const std::vector<SlotSpec> slots_;
};

absl::StatusOr<std::unique_ptr<Optimizer>> MakeSgd(const OptimizerSpec& spec) {
  RETURN_IF_ERROR(CheckLearningRate(spec.sgd().learning_rate(), "optimizer.sgd.learning_rate"));
  return std::make_unique<Sgd>(spec.sgd().learning_rate());
}

const Registration<OptimizerFactory> kSgd{"sgd", MakeSgd};

}  // namespace
}  // namespace lagrange

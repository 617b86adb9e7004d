#include <memory>
#include <vector>

#include "kernels/pointwise.h"
#include "worker/model/layer.h"

namespace lagrange {
namespace {

class Relu : public Layer {
 public:
  explicit Relu(const std::vector<int32_t>& shape) : shape_(shape) {
    for (const int32_t dimension : shape) elements_ *= dimension;
  }

  const std::vector<int32_t>& output_shape() const override { return shape_; }

  absl::Status Forward(int64_t examples, absl::Span<const float* const>, const float* input, float* output) override {
    return kernels::Relu(examples * elements_, input, output);
  }

  absl::Status Backward(int64_t examples, absl::Span<const float* const>, const float*, const float* output,
                        const float* output_gradient, float* input_gradient, absl::Span<float* const>) override {
    if (input_gradient == nullptr) return absl::OkStatus();
    return kernels::ReluGradient(examples * elements_, output, output_gradient, input_gradient);
  }

 private:
  std::vector<int32_t> shape_;
  int64_t elements_ = 1;
};

absl::StatusOr<std::unique_ptr<Layer>> MakeRelu(const LayerSpec&, const LayerInput& input) {
  return std::make_unique<Relu>(input.shape);
}

const LayerRegistration kRelu{"relu", MakeRelu};

}  // namespace
}  // namespace lagrange

#include <memory>
#include <vector>

#include "worker/model/layer.h"

namespace lagrange {
namespace {

class Flatten : public Layer {
 public:
  explicit Flatten(int32_t elements) : output_shape_{elements} {}

  const std::vector<int32_t>& output_shape() const override { return output_shape_; }
  bool reshapes_only() const override { return true; }

  absl::Status Forward(int64_t, absl::Span<const float* const>, const float*, float*) override {
    return absl::InternalError("flatten only reshapes: its input's memory is its output");
  }
  absl::Status Backward(int64_t, absl::Span<const float* const>, const float*, const float*, const float*, float*,
                        absl::Span<float* const>) override {
    return absl::InternalError("flatten only reshapes: its output's gradient is its input's");
  }

 private:
  std::vector<int32_t> output_shape_;
};

absl::StatusOr<std::unique_ptr<Layer>> MakeFlatten(const LayerSpec&, const LayerInput& input) {
  int32_t elements = 1;
  for (const int32_t dimension : input.shape) elements *= dimension;
  return std::make_unique<Flatten>(elements);
}

const LayerRegistration kFlatten{"flatten", MakeFlatten};

}  // namespace
}  // namespace lagrange

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "worker/model/layer.h"

namespace lagrange {
namespace {

constexpr int32_t kMaxUnits = 1 << 20;

// y = x W + b: x [examples, input], W [input, units], b [units].
class Dense : public Layer {
 public:
  Dense(const LayerSpec& spec, int32_t input_units)
      : name_(spec.name()), spec_(spec.dense()), input_units_(input_units), output_shape_{spec.dense().units()} {}

  const std::vector<int32_t>& output_shape() const override { return output_shape_; }

  std::vector<VariableSpec> variables() const override {
    std::vector<VariableSpec> variables(spec_.use_bias() ? 2 : 1);
    variables[0].set_name(absl::StrCat(name_, "/kernel"));
    variables[0].add_shape(input_units_);
    variables[0].add_shape(units());
    *variables[0].mutable_initializer() = spec_.kernel_initializer();
    if (spec_.use_bias()) {
      variables[1].set_name(absl::StrCat(name_, "/bias"));
      variables[1].add_shape(units());
      *variables[1].mutable_initializer() = spec_.bias_initializer();
    }
    return variables;
  }

  absl::Status Forward(int64_t examples, absl::Span<const float* const> parameters, const float* input,
                       float* output) override {
    kernels::MatMulOptions product;
    product.rows = examples;
    product.cols = units();
    product.depth = input_units_;
    RETURN_IF_ERROR(kernels::MatMul(product, input, parameters[0], output));
    if (!spec_.use_bias()) return absl::OkStatus();
    return kernels::AddBias(examples, units(), parameters[1], output);
  }

  absl::Status Backward(int64_t examples, absl::Span<const float* const> parameters, const float* input, const float*,
                        const float* output_gradient, float* input_gradient,
                        absl::Span<float* const> gradients) override {
    kernels::MatMulOptions of_kernel;
    of_kernel.rows = input_units_;
    of_kernel.cols = units();
    of_kernel.depth = examples;
    of_kernel.transpose_a = kernels::Transpose::kYes;
    RETURN_IF_ERROR(kernels::MatMul(of_kernel, input, output_gradient, gradients[0]));
    if (spec_.use_bias()) {
      RETURN_IF_ERROR(kernels::SumRows(examples, units(), output_gradient, gradients[1]));
    }
    if (input_gradient == nullptr) return absl::OkStatus();
    kernels::MatMulOptions of_input;
    of_input.rows = examples;
    of_input.cols = input_units_;
    of_input.depth = units();
    of_input.transpose_b = kernels::Transpose::kYes;
    return kernels::MatMul(of_input, output_gradient, parameters[0], input_gradient);
  }

 private:
  int32_t units() const { return spec_.units(); }

  std::string name_;
  DenseLayer spec_;
  int32_t input_units_;
  std::vector<int32_t> output_shape_;
};

absl::StatusOr<std::unique_ptr<Layer>> MakeDense(const LayerSpec& spec, const LayerInput& input) {
  const DenseLayer& dense = spec.dense();
  if (dense.units() < 1 || dense.units() > kMaxUnits) {
    return absl::InvalidArgumentError(absl::StrCat("units: expected 1 to ", kMaxUnits, ", got ", dense.units()));
  }
  if (input.shape.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("expected an input of 1 dimension, but ", input.source, " gives [",
                                                   absl::StrJoin(input.shape, ", "),
                                                   "]; a flatten layer makes it one"));
  }
  if (dense.input_units() != 0 && dense.input_units() != input.shape[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("input_units is ", dense.input_units(), ", but ", input.source, " gives ", input.shape[0]));
  }
  return std::make_unique<Dense>(spec, input.shape[0]);
}

const LayerRegistration kDense{"dense", MakeDense};

}  // namespace
}  // namespace lagrange

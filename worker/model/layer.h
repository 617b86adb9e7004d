// One step of a model's computation, with its gradient: what a new layer implements, in one file of this folder.
//
// Caller synchronizes. A layer owns no tensor: activations and gradients belong to the model, parameters to its caller,
// so that a step's path doesn't allocate. All tensors are dense row-major float32, the batch dimension first. A layer
// is stateless between calls; Backward gets what Forward got and gave.

#ifndef WORKER_MODEL_LAYER_H_
#define WORKER_MODEL_LAYER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/registry.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

class Layer {
 public:
  virtual ~Layer() = default;

  // Of one example, without the batch dimension; each dimension at least 1.
  virtual const std::vector<int32_t>& output_shape() const = 0;

  // In the order in which parameters and gradients are passed below.
  virtual std::vector<VariableSpec> variables() const { return {}; }

  // True when the layer only gives its input another shape: the model then hands the memory on and calls neither
  // Forward nor Backward.
  virtual bool reshapes_only() const { return false; }

  // input: [examples, input shape], output: [examples, output shape], disjoint. parameters: one pointer to a variable.
  virtual absl::Status Forward(int64_t examples, absl::Span<const float* const> parameters, const float* input,
                               float* output) = 0;

  // output_gradient: of the batch's loss by the output. Writes (never adds) the gradients of the variables, and that of
  // the input unless input_gradient is null; input_gradient and output_gradient are disjoint.
  virtual absl::Status Backward(int64_t examples, absl::Span<const float* const> parameters, const float* input,
                                const float* output, const float* output_gradient, float* input_gradient,
                                absl::Span<float* const> gradients) = 0;
};

struct LayerInput {
  // Of one example: each dimension at least 1, their product at most 2^28.
  std::vector<int32_t> shape;
  // Who gives it, for messages: "the layer before" or "the model's input".
  std::string source;
};

// spec: of the factory's kind, with its name set and defaults filled in. InvalidArgument says what the layer expects
// and what it gets; the caller puts the layer's field path before it.
using LayerFactory =
    std::function<absl::StatusOr<std::unique_ptr<Layer>>(const LayerSpec& spec, const LayerInput& input)>;
// In the layer's file: const LayerRegistration kDense{"dense", MakeDense}; under the name of LayerSpec's oneof field.
using LayerRegistration = Registration<LayerFactory>;

}  // namespace lagrange

#endif  // WORKER_MODEL_LAYER_H_

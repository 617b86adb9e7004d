// A model built from a job's layers: computes loss and gradients of a batch.
//
// Public: custom models implement it. Caller synchronizes; one instance computes one batch at a time and keeps its
// activations for the next call, so the step's path doesn't allocate. Parameters and gradients belong to the caller:
// one pointer to each variable's dense row-major floats, in the order of variables(); gradients never alias parameters.

#ifndef WORKER_MODEL_MODEL_H_
#define WORKER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

struct LabeledBatch {
  // [example_count, input elements]
  absl::Span<const float> inputs;
  // [example_count], each in [0, class_count)
  absl::Span<const int32_t> labels;
  int64_t example_count = 0;
};

struct BatchMetrics {
  int64_t example_count = 0;
  // Sum over the examples, in double.
  double loss_sum = 0;
  // Examples whose largest output is the label's (ties: the lowest class).
  int64_t correct_count = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const std::vector<VariableSpec>& variables() const = 0;
  virtual int64_t input_elements() const = 0;
  virtual int32_t class_count() const = 0;

  // Gradient of the batch's mean loss, written (not added) to gradients. InvalidArgument: sizes, or a label out of
  // range.
  virtual absl::StatusOr<BatchMetrics> ComputeGradients(const LabeledBatch& batch,
                                                        absl::Span<const float* const> parameters,
                                                        absl::Span<float* const> gradients) = 0;
  virtual absl::StatusOr<BatchMetrics> Evaluate(const LabeledBatch& batch,
                                                absl::Span<const float* const> parameters) = 0;
};

// From a job whose defaults are filled in. InvalidArgument names the layer's field path ("model.layers[1].dense: ..."),
// the shape it gets and what it expects.
absl::StatusOr<std::unique_ptr<Model>> NewModel(const ModelSpec& spec);

}  // namespace lagrange

#endif  // WORKER_MODEL_MODEL_H_

// What a model's last output is judged by: a new loss implements it, in one file of this folder.
//
// Const-safe: a loss keeps nothing between calls and never allocates.

#ifndef WORKER_MODEL_LOSS_H_
#define WORKER_MODEL_LOSS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/registry.h"
#include "proto/job.pb.h"
#include "worker/model/model.h"

namespace lagrange {

class Loss {
 public:
  virtual ~Loss() = default;

  // outputs: [examples, classes]; labels: [examples], each in [0, classes). gradient: [examples, classes] of the mean
  // loss, written; null when it isn't wanted. Sets all of metrics.
  virtual absl::Status Compute(int64_t examples, int64_t classes, const float* outputs, const int32_t* labels,
                               BatchMetrics* metrics, float* gradient) const = 0;
};

using LossFactory = std::function<absl::StatusOr<std::unique_ptr<Loss>>(const LossSpec& spec)>;
// Under the name of LossSpec's oneof field.
using LossRegistration = Registration<LossFactory>;

}  // namespace lagrange

#endif  // WORKER_MODEL_LOSS_H_

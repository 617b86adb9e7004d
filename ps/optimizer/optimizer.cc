#include "ps/optimizer/optimizer.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lagrange {

absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec) {
  const auto* oneof = OptimizerSpec::descriptor()->FindOneofByName("kind");
  const auto* field = OptimizerSpec::GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  if (field == nullptr) return absl::InvalidArgumentError("optimizer: expected one of its kinds, got none");
  const OptimizerFactory* make = Registry<OptimizerFactory>::Find(field->name());
  if (make == nullptr) {
    return absl::UnimplementedError(absl::StrCat("optimizer.", field->name(), ": not part of this program"));
  }
  return (*make)(spec);
}

absl::Status CheckLearningRate(float value, const char* field) {
  if (std::isfinite(value) && value > 0.0f) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected a finite number above 0, got ", value));
}

absl::Status CheckDecay(float value, const char* field) {
  if (value >= 0.0f && value < 1.0f) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": expected a number in [0, 1), got ", value));
}

}  // namespace lagrange

#include "ps/consistency/policy.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lagrange {

absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const ConsistencySpec& spec) {
  const auto* oneof = ConsistencySpec::descriptor()->FindOneofByName("kind");
  const auto* field = ConsistencySpec::GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  if (field == nullptr) return absl::InvalidArgumentError("consistency: expected one of its kinds, got none");
  const PolicyFactory* make = Registry<PolicyFactory>::Find(field->name());
  if (make == nullptr) {
    return absl::UnimplementedError(absl::StrCat("consistency.", field->name(), ": not part of this program"));
  }
  return (*make)(spec);
}

}  // namespace lagrange

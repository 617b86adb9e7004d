#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ps/consistency/policy.h"

namespace lagrange {
namespace {

constexpr int32_t kMaxStaleness = 1000000;

class Ssp : public Policy {
 public:
  explicit Ssp(int64_t staleness) : staleness_(staleness) {}
  bool AdmitPull(int64_t step_clock, int64_t min_clock) const override { return step_clock - min_clock <= staleness_; }
  PushMode push_mode() const override { return PushMode::kAtOnce; }

 private:
  const int64_t staleness_;
};

absl::StatusOr<std::unique_ptr<Policy>> MakeSsp(const ConsistencySpec& spec) {
  const int32_t staleness = spec.ssp().staleness();
  if (staleness < 0 || staleness > kMaxStaleness) {
    return absl::InvalidArgumentError(
        absl::StrCat("consistency.ssp.staleness: expected 0 to ", kMaxStaleness, ", got ", staleness));
  }
  return std::make_unique<Ssp>(staleness);
}

const Registration<PolicyFactory> kSsp{"ssp", MakeSsp};

}  // namespace
}  // namespace lagrange

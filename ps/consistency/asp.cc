#include "ps/consistency/policy.h"

namespace lagrange {
namespace {

class Asp : public Policy {
 public:
  bool AdmitPull(int64_t, int64_t) const override { return true; }
  PushMode push_mode() const override { return PushMode::kAtOnce; }
};

absl::StatusOr<std::unique_ptr<Policy>> MakeAsp(const ConsistencySpec&) { return std::make_unique<Asp>(); }

const Registration<PolicyFactory> kAsp{"asp", MakeAsp};

}  // namespace
}  // namespace lagrange

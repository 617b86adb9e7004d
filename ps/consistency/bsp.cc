#include "ps/consistency/policy.h"

namespace lagrange {
namespace {

// A pull at clock c waits for every member to have seen round c - 1 close on every ps: nobody is ever ahead.
class Bsp : public Policy {
 public:
  bool AdmitPull(int64_t step_clock, int64_t min_clock) const override { return step_clock <= min_clock; }
  PushMode push_mode() const override { return PushMode::kInRounds; }
};

absl::StatusOr<std::unique_ptr<Policy>> MakeBsp(const ConsistencySpec&) { return std::make_unique<Bsp>(); }

const Registration<PolicyFactory> kBsp{"bsp", MakeBsp};

}  // namespace
}  // namespace lagrange

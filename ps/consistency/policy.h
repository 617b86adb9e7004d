// When a pull may be answered and how pushes take effect: one file and one registration line each.
//
//   const Registration<PolicyFactory> kAsp{"asp", MakeAsp};   // in asp.cc; the name of ConsistencySpec's oneof field
//
// Pure and const-safe: a policy knows the numbers that it is given and nothing of who waits.

#ifndef PS_CONSISTENCY_POLICY_H_
#define PS_CONSISTENCY_POLICY_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/registry.h"
#include "proto/job.pb.h"

namespace lagrange {

enum class PushMode {
  // Each push is applied when it comes.
  kAtOnce,
  // The pushes of one clock are averaged by examples and applied once, when all members have contributed.
  kInRounds,
};

class Policy {
 public:
  virtual ~Policy() = default;

  // Whether a pull at `step_clock` may be answered while the smallest clock in the table is `min_clock`. Monotone: what
  // is admitted at one min_clock is admitted at every greater one.
  virtual bool AdmitPull(int64_t step_clock, int64_t min_clock) const = 0;

  virtual PushMode push_mode() const = 0;
};

// InvalidArgument names the option, its range and what it got. Defaults must have been filled in.
using PolicyFactory = absl::StatusOr<std::unique_ptr<Policy>> (*)(const ConsistencySpec& spec);

// By the spec's oneof field. InvalidArgument: none is set, or the factory refuses. Unimplemented: not linked.
absl::StatusOr<std::unique_ptr<Policy>> MakePolicy(const ConsistencySpec& spec);

}  // namespace lagrange

#endif  // PS_CONSISTENCY_POLICY_H_

// The rules by which a ps changes parameters, and their registry: one file and one registration line each.
//
//   const Registration<OptimizerFactory> kSgd{"sgd", MakeSgd};   // in sgd.cc; the name of OptimizerSpec's oneof field
//
// An Optimizer is const-safe: it holds the job's options and nothing of a shard. A shard's slots are the shard's, one
// array of the parameters' size for each SlotSpec. Apply never blocks, allocates or fails.

#ifndef PS_OPTIMIZER_OPTIMIZER_H_
#define PS_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/registry.h"
#include "proto/job.pb.h"

namespace lagrange {

struct SlotSpec {
  // Stands in checkpoints: never changes.
  std::string name;
  float initial_value = 0.0f;
};

// What one update reads and writes; all of one length. Each out is exactly its in, or disjoint from every in. Slots are
// in the order of slots().
struct UpdateSpans {
  absl::Span<const float> gradient;
  absl::Span<const float> in;
  absl::Span<float> out;
  absl::Span<const absl::Span<const float>> slots_in;
  absl::Span<const absl::Span<float>> slots_out;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual const std::vector<SlotSpec>& slots() const = 0;

  // `step` counts the updates of these parameters, from 1. Element-wise: parts of a range give the whole's bits.
  virtual void Apply(uint64_t step, const UpdateSpans& spans) const = 0;
};

// InvalidArgument names the option, its range and what it got. Defaults must have been filled in.
using OptimizerFactory = absl::StatusOr<std::unique_ptr<Optimizer>> (*)(const OptimizerSpec& spec);

// By the spec's oneof field. InvalidArgument: none is set, or the factory refuses. Unimplemented: not linked.
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const OptimizerSpec& spec);

// OK when value is finite and above 0; else InvalidArgument naming `field`. For factories.
absl::Status CheckLearningRate(float value, const char* field);
// OK when value lies in [0, 1).
absl::Status CheckDecay(float value, const char* field);

}  // namespace lagrange

#endif  // PS_OPTIMIZER_OPTIMIZER_H_

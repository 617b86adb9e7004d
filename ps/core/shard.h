// One shard of a variable: parameters, slots, version, what it has applied, its forks and its open bsp rounds.
//
// Caller synchronizes (the engine: one lock each shard); element_count, id and variable_name may be read at any time.
// Owns its buffers, and shares them with views and forks: an update that finds one shared writes to another. Never
// blocks. The optimizer outlives it.
//
// Invariants: (S1) a batch's bit is set in the same call that applies it; (S2) the fork of cut k holds exactly what was
// applied before RaiseCut first saw a cut >= k; (S3) a failed call changes nothing. Proved by shard_test.cc.

#ifndef PS_CORE_SHARD_H_
#define PS_CORE_SHARD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"
#include "ps/core/buffer.h"
#include "ps/core/dedupe.h"
#include "ps/core/staleness.h"
#include "ps/optimizer/optimizer.h"

namespace lagrange {

// What a push has for one shard.
struct ShardPart {
  int64_t lease_number = 0;
  int32_t batch = 0;
  int64_t epoch = 0;
  // The version that the gradient was computed from.
  uint64_t pulled_version = 0;
  // Rounds only.
  uint64_t incarnation = 0;
  int64_t round = 0;
  int64_t example_count = 0;
  // Of element_count() finite floats.
  absl::Span<const float> gradient;
};

class Shard {
 public:
  struct Options {
    ShardPlacement placement;
    VariableSpec variable;
    const Optimizer* optimizer = nullptr;
    int64_t batches_per_lease = 0;
    uint64_t job_seed = 0;
    // The ps's cut number when it is made.
    uint64_t cut = 0;
  };

  // A writer that is slow, two evaluations, and cuts that the chief has not released yet; beyond, the oldest fork goes,
  // and whoever wanted it is told that it is not held.
  static constexpr size_t kMaxForks = 8;
  // Workers of one round are at most one clock apart.
  static constexpr size_t kMaxOpenRounds = 2;
  // Keys of one round: one a worker, of at most 1,024 workers, and those of workers that died in it.
  static constexpr size_t kMaxPendingKeys = 4096;

  // At the initial values. InvalidArgument: the placement doesn't fit the variable, or its initializer is bad;
  // ResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(const Options& options);
  // From a snapshot, which may come from a disk: InvalidArgument names what doesn't fit.
  static absl::StatusOr<std::unique_ptr<Shard>> Restore(const Options& options, ShardSnapshot snapshot);

  uint32_t id() const { return options_.placement.shard(); }
  int64_t element_count() const { return element_count_; }
  const std::string& variable_name() const { return options_.variable.name(); }
  uint64_t version() const { return version_; }
  uint64_t cut() const { return cut_; }
  const BufferRef& parameters() const { return parameters_; }
  const StalenessTally& staleness() const { return staleness_; }

  // Before each operation: takes the fork when `cut` is above the shard's own.
  void RaiseCut(uint64_t cut);

  // Applies a part at once: APPLIED or DUPLICATE. InvalidArgument: pulled_version is of the future;
  // ResourceExhausted: no memory, or too many open leases.
  absl::StatusOr<ShardOutcome> Apply(const ShardPart& part);

  // Adds a part to its round: APPLIED (pending until the round closes; also when the same incarnation repeats it),
  // DUPLICATE (applied, or pending through someone else) or LATE. Errors as Apply's.
  absl::StatusOr<ShardOutcome> Contribute(const ShardPart& part);
  // Applies the mean by examples of each open round up to this one, and sets the bits of its keys. ResourceExhausted:
  // no memory; the round that it failed at and those after it stay open, for another try.
  absl::Status CloseRounds(int64_t round);

  absl::Status Retire(int64_t lease_number) { return dedupe_.Retire(lease_number); }

  // The fork of a cut, or nullopt when it isn't held. REQUIRES: RaiseCut was called with the ps's cut, >= `cut`.
  std::optional<ShardSnapshot> ForkOf(uint64_t cut) const;
  // As it is now.
  ShardSnapshot Snapshot() const;
  // Frees the forks that no cut above this one needs.
  void ReleaseForks(uint64_t cut);

 private:
  // The state of cuts first_cut ... last_cut: the shard saw none of them singly.
  struct Fork {
    uint64_t first_cut = 0;
    uint64_t last_cut = 0;
    uint64_t version = 0;
    BufferRef parameters;
    std::vector<BufferRef> slots;
    Dedupe dedupe;
  };
  using LeaseBatch = std::pair<int64_t, int32_t>;
  struct OpenRound {
    // Mean by examples of the contributions so far.
    BufferRef mean;
    int64_t example_count = 0;
    // Key -> who contributed it.
    std::map<LeaseBatch, uint64_t> pending;
  };

  Shard(const Options& options, int64_t element_count);
  ShardSnapshot MakeSnapshot(uint64_t version, const BufferRef& parameters, const std::vector<BufferRef>& slots,
                             const Dedupe& dedupe) const;
  absl::Status CheckPart(const ShardPart& part) const;
  absl::Status Update(absl::Span<const float> gradient);
  absl::Status Accumulate(const ShardPart& part, OpenRound* round);

  const Options options_;
  const int64_t element_count_;
  uint64_t cut_;
  uint64_t version_ = 0;
  BufferPool pool_;
  BufferRef parameters_;
  std::vector<BufferRef> slots_;
  Dedupe dedupe_;
  std::vector<Fork> forks_;
  std::map<int64_t, OpenRound> rounds_;
  // Rounds up to this are closed.
  int64_t closed_round_ = -1;
  size_t pending_count_ = 0;
  StalenessTally staleness_;
};

}  // namespace lagrange

#endif  // PS_CORE_SHARD_H_

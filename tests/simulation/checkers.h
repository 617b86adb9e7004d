// Judges of a simulated run: each knows one invariant of ARCHITECTURE.md and none of the code that is to keep it.
//
// They see what crosses the cores' borders (messages, answers, committed records) and the shards' floats. The simulated
// model has one element for each batch of the job in each shard; a batch's gradient is nonzero at its own element
// alone, so an element that changes is an update that was applied. Each returns an error that names what broke; the
// first one ends the run. Caller synchronizes.

#ifndef TESTS_SIMULATION_CHECKERS_H_
#define TESTS_SIMULATION_CHECKERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "chief/core/records.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"
#include "ps/core/buffer.h"

namespace lagrange::simulation {

// Numbers the job's batches through epochs, leases and batches: the element that a batch moves.
struct BatchNumbering {
  int64_t epochs = 0;
  int64_t leases = 0;
  int64_t batches_per_lease = 0;

  int64_t count() const { return epochs * leases * batches_per_lease; }
  int64_t NumberOf(const BatchKey& key) const {
    return (key.epoch() * leases + key.lease()) * batches_per_lease + key.batch();
  }
};

// Invariant 1: each batch is applied at most once on each shard; an acknowledged step is on every shard.
class AppliedOnceChecker {
 public:
  AppliedOnceChecker(const BatchNumbering& numbering, int64_t shard_count);

  // After every call into a ps's engine: the shards' present floats.
  absl::Status OnShards(const std::vector<ShardSnapshot>& shards);
  // A worker reports a batch done: every ps has acknowledged it.
  absl::Status OnDone(const BatchKey& key) const;
  // The job is over: each batch that the ledger has done is on each shard once, each skipped one on none.
  absl::Status OnEnd(const Durable& ledger) const;

  bool Applied(int64_t shard, int64_t batch) const { return applied_[shard][batch] > 0; }

 private:
  const BatchNumbering numbering_;
  // [shard][batch]
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<int>> applied_;
};

// Invariant 2: a cut holds what its ledger calls done, and nothing was computed from a state outside it.
class CutChecker {
 public:
  explicit CutChecker(const BatchNumbering& numbering) : numbering_(numbering) {}

  // A pull's answer reached the worker that computes `key` from it: batches seen in each shard's floats.
  void OnRead(const BatchKey& key, const std::vector<ShardSnapshot>& views);
  // A ps writes its fork of a cut.
  void OnFork(uint64_t cut, const std::vector<ShardSnapshot>& shards);
  // The manifest of a cut is written: its ledger must fit all forks.
  absl::Status OnManifest(const CheckpointManifest& manifest, int64_t shard_count) const;

 private:
  absl::Status CheckLedger(const CutLedger& ledger, const std::map<uint32_t, std::set<int64_t>>& held) const;
  absl::Status CheckCausality(uint64_t cut, const std::map<uint32_t, std::set<int64_t>>& held) const;

  const BatchNumbering numbering_;
  // Of each batch, the reads that a push of it may come from: shard -> batches seen. Every attempt is kept; the cut may
  // hold any one of them, so what all of them saw is what must be in it.
  std::map<int64_t, std::map<uint32_t, std::set<int64_t>>> common_reads_;
  std::map<uint64_t, std::map<uint32_t, std::set<int64_t>>> forks_;
};

// Invariant 3: a pull at clock c under ssp{s} is answered only when every member in the ps's table has clock >= c - s.
// Keeps a clock table of its own from the messages that reach one ps.
class StalenessChecker {
 public:
  // staleness < 0: unbounded.
  explicit StalenessChecker(int64_t staleness) : staleness_(staleness) {}

  // The command as answered.
  void OnMembership(const SetMembership& change, const PsCommandResult& result);
  // Before the engine sees it.
  void OnRequest(const RequestHeader& header);
  // The engine answered a pull OK.
  absl::Status OnPullAnswered(const RequestHeader& header) const;

 private:
  struct Member {
    int64_t clock = 0;
    bool in_table = false;
    bool gone = false;
    uint64_t sequence = 0;
  };
  const int64_t staleness_;
  std::map<uint64_t, Member> members_;
};

// Invariant 5: no live process waits for a dead or idle one longer than its lease, plus what the network may hold back.
class WaitChecker {
 public:
  explicit WaitChecker(absl::Duration limit) : limit_(limit) {}

  void OnPullArrived(int32_t ps, uint64_t incarnation, uint64_t request_id, absl::Time now);
  void OnPullAnswered(int32_t ps, uint64_t incarnation, uint64_t request_id);
  // The worker is gone: nobody waits.
  void OnWorkerGone(uint64_t incarnation);
  // Time during which the chief is away can't count against a lease.
  void OnChiefBack(absl::Time now);
  absl::Status Check(absl::Time now) const;

 private:
  const absl::Duration limit_;
  std::map<std::tuple<int32_t, uint64_t, uint64_t>, absl::Time> waiting_;
};

}  // namespace lagrange::simulation

#endif  // TESTS_SIMULATION_CHECKERS_H_

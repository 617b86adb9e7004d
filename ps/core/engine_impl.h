// The engine, for any mutex; included by engine.cc and engine_thread_safe.cc alone. Contract: engine.h.
//
// How the locks meet: control_ guards all but the shards; each shard has its own. The cut is an atomic that only grows,
// written under control_ and read under a shard's lock before each of its operations: the shard forks then. Shards sit
// in an Installed that is never changed, only replaced, so an operation that outlives a rollback ends in the old one.

#ifndef PS_CORE_ENGINE_IMPL_H_
#define PS_CORE_ENGINE_IMPL_H_

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/update_rules.h"
#include "ps/core/clock_table.h"
#include "ps/core/engine.h"
#include "ps/core/installation.h"
#include "ps/core/request_check.h"
#include "ps/core/round_table.h"
#include "ps/core/shard.h"
#include "ps/core/staleness.h"
#include "ps/core/waiting_pulls.h"

namespace lagrange {

template <typename Mutex>
class ABSL_SCOPED_LOCKABLE ScopedLock {
 public:
  explicit ScopedLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~ScopedLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  Mutex* const mutex_;
};

template <typename Mutex>
class EngineImpl : public Engine {
 public:
  explicit EngineImpl(const EngineOptions& options) : waiting_(options.max_waiting_pulls) {}

  absl::StatusOr<PsCommandResult> Execute(const PsCommand& command, PsEffects* effects) override;
  absl::StatusOr<PsCommandResult> Restore(const PsCommand& command, std::vector<ShardSnapshot> shards) override;
  void SetIdentity(uint64_t incarnation, uint64_t term, uint64_t generation) override;
  void Pull(const RequestHeader& header, uint64_t request_id, absl::Span<const uint32_t> shards, RequestToken token,
            PsEffects* effects) override;
  bool BeginPush(const RequestHeader& header, uint64_t request_id, RequestToken token, PsEffects* effects) override;
  absl::StatusOr<ShardResult> ApplyPart(const RequestHeader& header, uint32_t shard, uint64_t pulled_version,
                                        absl::Span<const float> gradient) override;
  void EndPush(const RequestHeader& header, uint64_t request_id, RequestToken token, std::vector<ShardResult> results,
               PsEffects* effects) override;
  void Forget(absl::Span<const RequestToken> tokens) override;
  absl::StatusOr<int64_t> ElementCountOf(uint32_t shard) const override;
  absl::StatusOr<std::vector<ShardSnapshot>> GetFork(uint64_t cut) const override;
  std::vector<ShardSnapshot> Snapshot() const override;
  StalenessStatistics Staleness() const override;
  int64_t LargestClock() const override;

 private:
  struct LockedShard {
    Mutex mutex;
    // The pointer never changes; what it points to is guarded, but for its id, name and size.
    std::unique_ptr<Shard> shard ABSL_PT_GUARDED_BY(mutex);
    uint32_t id = 0;
    std::string name;
    int64_t element_count = 0;
  };
  struct Installed {
    uint64_t generation = 0;
    uint64_t map_version = 0;
    LeaseTable leases;
    std::unique_ptr<Policy> policy;
    std::unique_ptr<Optimizer> optimizer;
    std::map<uint32_t, std::unique_ptr<LockedShard>> shards;

    bool InRounds() const { return policy->push_mode() == PushMode::kInRounds; }
    LockedShard* Find(uint32_t shard) const {
      const auto found = shards.find(shard);
      return found == shards.end() ? nullptr : found->second.get();
    }
  };
  using InstalledPtr = std::shared_ptr<const Installed>;
  // A pull that is decided; the shards are read after control_ is let go.
  struct AdmittedPull {
    RequestToken token = 0;
    ReplyHeader header;
    std::vector<uint32_t> shards;
    // 0: live.
    uint64_t pinned_cut = 0;
    InstalledPtr installed;
  };

  // ---- under control_ ----
  absl::Status CheckCommand(const PsCommand& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  absl::StatusOr<PsCommandResult> InstallNow(const PsCommand& command, std::vector<ShardSnapshot>* snapshots)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  absl::Status SetMembershipNow(const SetMembership& command, PsCommandResult* result, PsEffects* effects)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  absl::Status RetireNow(const RetireLeases& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  void RaiseCut(uint64_t cut) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  // A new generation: nobody is a member, nothing waits.
  void StartOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  // Answers FENCED to all that one who left still waits for.
  void FenceWaiting(uint64_t incarnation, PsEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  // After any change of clocks or members: closes the rounds and admits the pulls that may go on now.
  std::vector<AdmittedPull> Settle(PsEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  // False: memory is out; the round stays open, and those who wait for it are told to send again.
  bool CloseRound(int64_t round, PsEffects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  AdmittedPull Admit(WaitingPull pull, int64_t min_clock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  Refusal CheckPull(const RequestHeader& header, absl::Span<const uint32_t> shards)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  Refusal CheckMember(const RequestHeader& header) ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_);
  ReplyHeader Reply(const Refusal& refusal) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(control_) {
    return MakeReply(refusal, identity_, cut_.load());
  }

  // ---- without control_, or with it ----
  template <typename Operation>
  auto OnShard(LockedShard* locked, const Operation& operation) const {
    const ScopedLock<Mutex> lock(&locked->mutex);
    locked->shard->RaiseCut(cut_.load());
    return operation(locked->shard.get());
  }
  // Reads the shards of each admitted pull. Not under control_: it is what most of the time goes to.
  void Answer(std::vector<AdmittedPull> admitted, PsEffects* effects) const ABSL_LOCKS_EXCLUDED(control_);
  InstalledPtr GetInstalled() const ABSL_LOCKS_EXCLUDED(control_) {
    const ScopedLock<Mutex> lock(&control_);
    return installed_;
  }
  static std::shared_ptr<const Installed> Lock(Installation made);
  static absl::Status CheckPart(const LockedShard& locked, absl::Span<const float> gradient);

  // Guards all below. May be held while a shard's lock is taken, never the other way round.
  mutable Mutex control_;
  PsIdentity identity_ ABSL_GUARDED_BY(control_);
  InstalledPtr installed_ ABSL_GUARDED_BY(control_);
  ClockTable clocks_ ABSL_GUARDED_BY(control_);
  WaitingPulls waiting_ ABSL_GUARDED_BY(control_);
  RoundTable rounds_ ABSL_GUARDED_BY(control_);
  // Of clocks; versions are counted by the shards.
  StalenessTally staleness_ ABSL_GUARDED_BY(control_);
  uint64_t released_cut_ ABSL_GUARDED_BY(control_) = 0;
  // Answers to what waited when a generation ended: sent with the next call's effects.
  PsEffects orphans_ ABSL_GUARDED_BY(control_);
  // Written under control_.
  std::atomic<uint64_t> cut_{0};
};

}  // namespace lagrange

#include "ps/core/engine_control_inl.h"
#include "ps/core/engine_data_inl.h"

#endif  // PS_CORE_ENGINE_IMPL_H_

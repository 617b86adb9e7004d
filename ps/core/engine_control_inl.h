// EngineImpl's commands from the chief. Included by engine_impl.h alone.

#ifndef PS_CORE_ENGINE_CONTROL_INL_H_
#define PS_CORE_ENGINE_CONTROL_INL_H_

#include "ps/core/engine_impl.h"

namespace lagrange {

template <typename Mutex>
void EngineImpl<Mutex>::SetIdentity(uint64_t incarnation, uint64_t term, uint64_t generation) {
  const ScopedLock<Mutex> lock(&control_);
  identity_.incarnation = incarnation;
  identity_.term = std::max(identity_.term, term);
  identity_.generation = std::max(identity_.generation, generation);
}

template <typename Mutex>
absl::Status EngineImpl<Mutex>::CheckCommand(const PsCommand& command) {
  if (identity_.incarnation == 0) {
    // The chief has registered this ps, but the answer that tells it so is still under way: not refused, only early.
    return absl::UnavailableError("this ps has not heard of its registration yet");
  }
  if (command.incarnation() != identity_.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat("the command is for incarnation ", command.incarnation(),
                                                      ", this ps is incarnation ", identity_.incarnation));
  }
  if (command.term() < identity_.term || command.generation() < identity_.generation) {
    return absl::AbortedError(absl::StrCat("the command is of term ", command.term(), ", generation ",
                                           command.generation(), "; this ps is at term ", identity_.term,
                                           ", generation ", identity_.generation));
  }
  const bool needs_shards = !command.has_install_shards() && !command.has_shut_down();
  if (needs_shards && (!identity_.installed || command.generation() > identity_.generation)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the shards of generation ", command.generation(), " aren't installed"));
  }
  identity_.term = command.term();
  return absl::OkStatus();
}

template <typename Mutex>
absl::StatusOr<PsCommandResult> EngineImpl<Mutex>::Execute(const PsCommand& command, PsEffects* effects) {
  std::vector<AdmittedPull> admitted;
  PsCommandResult result;
  InstalledPtr installed;
  {
    const ScopedLock<Mutex> lock(&control_);
    RETURN_IF_ERROR(CheckCommand(command));
    switch (command.command_case()) {
      case PsCommand::kInstallShards:
        if (command.install_shards().has_restore()) {
          return absl::InvalidArgumentError("install_shards with a restore: its snapshots must be given");
        }
        return InstallNow(command, nullptr);
      case PsCommand::kSetMembership:
        RETURN_IF_ERROR(SetMembershipNow(command.set_membership(), &result, effects));
        admitted = Settle(effects);
        break;
      case PsCommand::kRetireLeases:
        RETURN_IF_ERROR(RetireNow(command.retire_leases()));
        break;
      case PsCommand::kAnnounceCut:
        RaiseCut(command.announce_cut().cut());
        staleness_.MergeEpochInto(command.announce_cut().epoch(), result.mutable_staleness());
        break;
      case PsCommand::kReleaseCut:
        released_cut_ = std::max(released_cut_, command.release_cut().cut());
        break;
      case PsCommand::kWriteCheckpoint:
      case PsCommand::kShutDown:
        break;
      case PsCommand::COMMAND_NOT_SET:
        return absl::InvalidArgumentError("the command is empty");
    }
    result.set_cut(cut_.load());
    installed = installed_;
  }
  if (command.has_write_checkpoint()) RETURN_IF_ERROR(GetFork(command.write_checkpoint().cut()).status());
  if (command.has_announce_cut() || command.has_release_cut()) {
    for (const auto& [id, locked] : installed->shards) {
      OnShard(locked.get(), [&](Shard* shard) {
        if (command.has_release_cut()) return shard->ReleaseForks(command.release_cut().cut());
        shard->staleness().MergeEpochInto(command.announce_cut().epoch(), result.mutable_staleness());
      });
    }
  }
  Answer(std::move(admitted), effects);
  return result;
}

template <typename Mutex>
absl::StatusOr<PsCommandResult> EngineImpl<Mutex>::Restore(const PsCommand& command,
                                                           std::vector<ShardSnapshot> shards) {
  const ScopedLock<Mutex> lock(&control_);
  RETURN_IF_ERROR(CheckCommand(command));
  return InstallNow(command, &shards);
}

template <typename Mutex>
absl::StatusOr<PsCommandResult> EngineImpl<Mutex>::InstallNow(const PsCommand& command,
                                                              std::vector<ShardSnapshot>* snapshots) {
  PsCommandResult result;
  if (identity_.installed && command.generation() == installed_->generation) {
    if (command.install_shards().map().version() != installed_->map_version) {
      return absl::FailedPreconditionError(absl::StrCat("shards are installed under map ", installed_->map_version,
                                                        "; map ", command.install_shards().map().version(),
                                                        " needs a higher generation"));
    }
    result.set_cut(cut_.load());
    return result;
  }
  ASSIGN_OR_RETURN(Installation made, Install(command, snapshots));
  cut_.store(made.cut);
  released_cut_ = made.cut;
  installed_ = Lock(std::move(made));
  identity_.generation = installed_->generation;
  identity_.map_version = installed_->map_version;
  identity_.installed = true;
  StartOver();
  result.set_cut(cut_.load());
  return result;
}

template <typename Mutex>
void EngineImpl<Mutex>::StartOver() {
  const ReplyHeader stale = Reply({STALE_GENERATION, "the shards were installed anew"});
  for (const WaitingPull& pull : waiting_.Take([](const WaitingPull&) { return true; })) {
    orphans_.pulls.push_back({pull.token, stale, {}});
  }
  for (const Contribution& push : rounds_.TakeAllWaiting()) orphans_.pushes.push_back({push.token, stale});
  clocks_ = ClockTable();
  rounds_ = RoundTable();
}

template <typename Mutex>
std::shared_ptr<const typename EngineImpl<Mutex>::Installed> EngineImpl<Mutex>::Lock(Installation made) {
  auto installed = std::make_shared<Installed>();
  installed->generation = made.generation;
  installed->map_version = made.map_version;
  installed->leases = made.leases;
  installed->policy = std::move(made.policy);
  installed->optimizer = std::move(made.optimizer);
  for (auto& [id, shard] : made.shards) {
    auto locked = std::make_unique<LockedShard>();
    locked->id = id;
    locked->name = shard->variable_name();
    locked->element_count = shard->element_count();
    locked->shard = std::move(shard);
    installed->shards.emplace(id, std::move(locked));
  }
  return installed;
}

template <typename Mutex>
absl::Status EngineImpl<Mutex>::SetMembershipNow(const SetMembership& command, PsCommandResult* result,
                                                 PsEffects* effects) {
  for (const MemberChange& change : command.changes()) {
    if (change.state() != MemberChange::JOINED && change.state() != MemberChange::PARKED &&
        change.state() != MemberChange::EVICTED) {
      return absl::InvalidArgumentError(absl::StrCat("state of incarnation ", change.incarnation(),
                                                     ": expected JOINED, PARKED or EVICTED, got ", change.state()));
    }
  }
  // A joiner can't contribute to a closed round, and must not be waited for there.
  const int64_t floor = installed_->InRounds() ? rounds_.first_open_clock() : 0;
  for (const MemberChange& change : command.changes()) {
    if (change.state() == MemberChange::JOINED) {
      const auto clock = clocks_.Join(change.incarnation(), change.sequence(), change.task_index(), floor);
      if (!clock.has_value()) continue;
      JoinedClock* joined = result->add_joined();
      joined->set_incarnation(change.incarnation());
      joined->set_clock(*clock);
      continue;
    }
    const bool changed = change.state() == MemberChange::PARKED
                             ? clocks_.Park(change.incarnation(), change.sequence())
                             : clocks_.Evict(change.incarnation(), change.sequence());
    if (changed) FenceWaiting(change.incarnation(), effects);
  }
  return absl::OkStatus();
}

template <typename Mutex>
void EngineImpl<Mutex>::FenceWaiting(uint64_t incarnation, PsEffects* effects) {
  RequestHeader header;
  header.set_incarnation(incarnation);
  const Refusal fenced = Fenced(header);
  for (const WaitingPull& pull : waiting_.Take([&](const WaitingPull& p) { return p.incarnation == incarnation; })) {
    effects->pulls.push_back({pull.token, Reply(fenced), {}});
  }
  for (const Contribution& contribution : rounds_.TakeWaitingOf(incarnation)) {
    effects->pushes.push_back({contribution.token, Reply(fenced)});
  }
}

template <typename Mutex>
absl::Status EngineImpl<Mutex>::RetireNow(const RetireLeases& command) {
  const LeaseTable& leases = installed_->leases;
  uint64_t cut = 0;
  for (const RetireLeases::Lease& lease : command.leases()) {
    BatchKey key;
    key.set_epoch(lease.epoch());
    key.set_lease(lease.lease());
    RETURN_IF_ERROR(leases.CheckKey(key));
    cut = std::max(cut, lease.cut());
  }
  RaiseCut(cut);
  for (const auto& [id, locked] : installed_->shards) {
    for (const RetireLeases::Lease& lease : command.leases()) {
      RETURN_IF_ERROR(OnShard(
          locked.get(), [&](Shard* shard) { return shard->Retire(leases.NumberOf(lease.epoch(), lease.lease())); }));
    }
  }
  return absl::OkStatus();
}

template <typename Mutex>
void EngineImpl<Mutex>::RaiseCut(uint64_t cut) {
  if (cut > cut_.load()) cut_.store(cut);
}

template <typename Mutex>
absl::StatusOr<std::vector<ShardSnapshot>> EngineImpl<Mutex>::GetFork(uint64_t cut) const {
  InstalledPtr installed;
  {
    const ScopedLock<Mutex> lock(&control_);
    installed = installed_;
    if (installed == nullptr || cut <= released_cut_ || cut > cut_.load()) {
      return absl::NotFoundError(absl::StrCat("cut ", cut, " isn't held; this ps is at cut ", cut_.load(),
                                              ", released up to ", released_cut_));
    }
  }
  std::vector<ShardSnapshot> snapshots;
  for (const auto& [id, locked] : installed->shards) {
    std::optional<ShardSnapshot> fork = OnShard(locked.get(), [cut](Shard* shard) { return shard->ForkOf(cut); });
    if (!fork.has_value()) return absl::NotFoundError(absl::StrCat("shard ", id, " holds no fork of cut ", cut));
    snapshots.push_back(*std::move(fork));
  }
  return snapshots;
}

template <typename Mutex>
std::vector<ShardSnapshot> EngineImpl<Mutex>::Snapshot() const {
  std::vector<ShardSnapshot> snapshots;
  const InstalledPtr installed = GetInstalled();
  if (installed == nullptr) return snapshots;
  for (const auto& [id, locked] : installed->shards) {
    snapshots.push_back(OnShard(locked.get(), [](Shard* shard) { return shard->Snapshot(); }));
  }
  return snapshots;
}

template <typename Mutex>
StalenessStatistics EngineImpl<Mutex>::Staleness() const {
  StalenessStatistics statistics;
  InstalledPtr installed;
  {
    const ScopedLock<Mutex> lock(&control_);
    installed = installed_;
    staleness_.MergeTotalInto(&statistics);
  }
  if (installed == nullptr) return statistics;
  for (const auto& [id, locked] : installed->shards) {
    OnShard(locked.get(), [&](Shard* shard) { shard->staleness().MergeTotalInto(&statistics); });
  }
  return statistics;
}

template <typename Mutex>
int64_t EngineImpl<Mutex>::LargestClock() const {
  const ScopedLock<Mutex> lock(&control_);
  return clocks_.largest_clock();
}

}  // namespace lagrange

#endif  // PS_CORE_ENGINE_CONTROL_INL_H_

// EngineImpl's pulls and pushes. Included by engine_impl.h alone.

#ifndef PS_CORE_ENGINE_DATA_INL_H_
#define PS_CORE_ENGINE_DATA_INL_H_

#include "ps/core/engine_impl.h"

namespace lagrange {

template <typename Mutex>
Refusal EngineImpl<Mutex>::CheckMember(const RequestHeader& header) {
  return clocks_.Find(header.incarnation()) != nullptr ? Refusal() : Fenced(header);
}

template <typename Mutex>
Refusal EngineImpl<Mutex>::CheckPull(const RequestHeader& header, absl::Span<const uint32_t> shards) {
  if (Refusal refusal = CheckFences(header, identity_); refusal.code != OK) return refusal;
  std::set<uint32_t> seen;
  for (const uint32_t shard : shards) {
    if (installed_->Find(shard) == nullptr) return {REFUSED, absl::StrCat("shard ", shard, " isn't on this ps")};
    if (!seen.insert(shard).second) return {REFUSED, absl::StrCat("shard ", shard, " is asked for twice")};
  }
  // An evaluation reads a fork, which no clock moves.
  if (header.pinned_cut() != 0) return {};
  if (Refusal refusal = CheckMember(header); refusal.code != OK) return refusal;
  return CheckClocks(header);
}

template <typename Mutex>
void EngineImpl<Mutex>::Pull(const RequestHeader& header, uint64_t request_id, absl::Span<const uint32_t> shards,
                             RequestToken token, PsEffects* effects) {
  std::vector<AdmittedPull> admitted;
  {
    const ScopedLock<Mutex> lock(&control_);
    if (const Refusal refusal = CheckPull(header, shards); refusal.code != OK) {
      effects->pulls.push_back({token, Reply(refusal), {}});
      return;
    }
    WaitingPull pull{token, request_id, header.incarnation(), header.step_clock(), {shards.begin(), shards.end()}};
    if (header.pinned_cut() != 0) {
      AdmittedPull pinned{token, Reply({}), std::move(pull.shards), header.pinned_cut(), installed_};
      admitted.push_back(std::move(pinned));
    } else {
      clocks_.Observe(header.incarnation(), header.clock());
      // Waits first, so that a repeat replaces its waiting self and all are decided in one place.
      if (!waiting_.Add(std::move(pull))) {
        effects->pulls.push_back({token, Reply({UNAVAILABLE, "too many pulls wait already"}), {}});
      }
      admitted = Settle(effects);
    }
  }
  Answer(std::move(admitted), effects);
}

template <typename Mutex>
typename EngineImpl<Mutex>::AdmittedPull EngineImpl<Mutex>::Admit(WaitingPull pull, int64_t min_clock) {
  const int64_t staleness = std::max<int64_t>(0, pull.step_clock - min_clock);
  staleness_.AddClocksOfTotal(staleness);
  ClockTable::Member* member = clocks_.Find(pull.incarnation);
  if (member != nullptr) member->pending_staleness = std::max(member->pending_staleness, staleness);
  AdmittedPull admitted{pull.token, Reply({}), std::move(pull.shards), 0, installed_};
  admitted.header.set_staleness_clocks(staleness);
  return admitted;
}

template <typename Mutex>
std::vector<typename EngineImpl<Mutex>::AdmittedPull> EngineImpl<Mutex>::Settle(PsEffects* effects) {
  for (PullAnswer& answer : orphans_.pulls) effects->pulls.push_back(std::move(answer));
  for (PushAnswer& answer : orphans_.pushes) effects->pushes.push_back(std::move(answer));
  orphans_ = PsEffects();
  while (const std::optional<int64_t> round = rounds_.NextToClose(clocks_)) {
    if (!CloseRound(*round, effects)) break;
  }
  std::vector<AdmittedPull> admitted;
  const std::optional<int64_t> min = clocks_.Min();
  if (!min.has_value()) return admitted;
  const Policy& policy = *installed_->policy;
  const auto may_go_on = [&policy, &min](const WaitingPull& pull) { return policy.AdmitPull(pull.step_clock, *min); };
  for (WaitingPull& pull : waiting_.Take(may_go_on)) admitted.push_back(Admit(std::move(pull), *min));
  return admitted;
}

template <typename Mutex>
bool EngineImpl<Mutex>::CloseRound(int64_t round, PsEffects* effects) {
  absl::Status status;
  for (const auto& [id, locked] : installed_->shards) {
    status.Update(OnShard(locked.get(), [round](Shard* shard) { return shard->CloseRounds(round); }));
  }
  if (!status.ok()) {
    // The gradients stay in the shards that couldn't apply them. Whoever sends again makes the next try.
    for (const Contribution& contribution : rounds_.TakeAllWaiting()) {
      effects->pushes.push_back({contribution.token, Reply({UNAVAILABLE, std::string(status.message())})});
    }
    return false;
  }
  for (Contribution& contribution : rounds_.Close(round)) {
    PushAnswer answer{contribution.token, Reply({})};
    for (ShardResult& result : contribution.results) *answer.header.add_results() = std::move(result);
    effects->pushes.push_back(std::move(answer));
  }
  return true;
}

template <typename Mutex>
void EngineImpl<Mutex>::Answer(std::vector<AdmittedPull> admitted, PsEffects* effects) const {
  for (AdmittedPull& pull : admitted) {
    PullAnswer answer{pull.token, std::move(pull.header), {}};
    if (pull.shards.empty()) {
      for (const auto& [id, locked] : pull.installed->shards) pull.shards.push_back(id);
    }
    bool held = pull.pinned_cut <= cut_.load();
    for (const uint32_t id : pull.shards) {
      if (!held) break;
      held = OnShard(pull.installed->Find(id), [&](Shard* shard) {
        if (pull.pinned_cut == 0) {
          answer.shards.push_back({id, shard->version(), shard->parameters()});
          return true;
        }
        const std::optional<ShardSnapshot> fork = shard->ForkOf(pull.pinned_cut);
        if (fork.has_value()) answer.shards.push_back({id, fork->version, fork->parameters});
        return fork.has_value();
      });
    }
    if (!held) {
      answer.shards.clear();
      answer.header.set_code(NO_SUCH_CUT);
      answer.header.set_message(absl::StrCat("no fork of cut ", pull.pinned_cut, " is held"));
    }
    // After the reads: at least the cut of each.
    answer.header.set_cut(cut_.load());
    effects->pulls.push_back(std::move(answer));
  }
}

template <typename Mutex>
bool EngineImpl<Mutex>::BeginPush(const RequestHeader& header, uint64_t request_id, RequestToken token,
                                  PsEffects* effects) {
  std::vector<AdmittedPull> admitted;
  Refusal refusal;
  {
    const ScopedLock<Mutex> lock(&control_);
    refusal = CheckFences(header, identity_);
    if (refusal.code == OK) refusal = CheckMember(header);
    if (refusal.code == OK) refusal = CheckClocks(header);
    if (refusal.code == OK) refusal = CheckPush(header, installed_->leases, cut_.load());
    if (refusal.code == OK) {
      RaiseCut(header.cut());
      clocks_.Observe(header.incarnation(), header.clock());
      ClockTable::Member* member = clocks_.Find(header.incarnation());
      staleness_.AddClocks(header.key().epoch(), std::exchange(member->pending_staleness, 0));
      admitted = Settle(effects);
      const int64_t round = header.step_clock();
      if (installed_->InRounds() && !rounds_.IsClosed(round) && !rounds_.Open(round)) {
        refusal = {REFUSED, absl::StrCat("round ", round, " would be open beside ", Shard::kMaxOpenRounds, " others")};
      }
    }
    if (refusal.code != OK) effects->pushes.push_back({token, Reply(refusal)});
  }
  Answer(std::move(admitted), effects);
  return refusal.code == OK;
}

template <typename Mutex>
absl::Status EngineImpl<Mutex>::CheckPart(const LockedShard& locked, absl::Span<const float> gradient) {
  const int64_t count = static_cast<int64_t>(gradient.size());
  if (count != locked.element_count) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", locked.id, " of ", locked.name, ": expected ",
                                                   locked.element_count, " gradient elements, got ", count));
  }
  const int64_t bad = kernels::FirstNonFinite(count, gradient.data());
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard ", locked.id, " of ", locked.name, ": gradient element ", bad, " is ", gradient[bad]));
}

template <typename Mutex>
absl::StatusOr<ShardResult> EngineImpl<Mutex>::ApplyPart(const RequestHeader& header, uint32_t shard,
                                                         uint64_t pulled_version, absl::Span<const float> gradient) {
  const InstalledPtr installed = GetInstalled();
  ShardResult result;
  result.set_shard(shard);
  if (installed == nullptr || installed->generation != header.generation() ||
      installed->map_version != header.map_version()) {
    result.set_outcome(MOVED);
    return result;
  }
  LockedShard* locked = installed->Find(shard);
  if (locked == nullptr) return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " isn't on this ps"));
  RETURN_IF_ERROR(installed->leases.CheckKey(header.key()));
  RETURN_IF_ERROR(CheckPart(*locked, gradient));
  ShardPart part;
  part.lease_number = installed->leases.NumberOf(header.key().epoch(), header.key().lease());
  part.batch = header.key().batch();
  part.epoch = header.key().epoch();
  part.pulled_version = pulled_version;
  part.incarnation = header.incarnation();
  part.round = header.step_clock();
  part.example_count = header.example_count();
  part.gradient = gradient;
  ASSIGN_OR_RETURN(const ShardOutcome outcome, OnShard(locked, [&](Shard* applied) {
                     return installed->InRounds() ? applied->Contribute(part) : applied->Apply(part);
                   }));
  result.set_outcome(outcome);
  return result;
}

template <typename Mutex>
void EngineImpl<Mutex>::EndPush(const RequestHeader& header, uint64_t request_id, RequestToken token,
                                std::vector<ShardResult> results, PsEffects* effects) {
  std::vector<AdmittedPull> admitted;
  {
    const ScopedLock<Mutex> lock(&control_);
    Refusal refusal = CheckFences(header, identity_);
    if (refusal.code == OK) refusal = CheckMember(header);
    if (refusal.code != OK) {
      effects->pushes.push_back({token, Reply(refusal)});
      return;
    }
    const int64_t round = header.step_clock();
    if (!installed_->InRounds() || rounds_.IsClosed(round)) {
      PushAnswer answer{token, Reply({})};
      for (ShardResult& result : results) *answer.header.add_results() = std::move(result);
      effects->pushes.push_back(std::move(answer));
      return;
    }
    if (!rounds_.Open(round)) {
      effects->pushes.push_back({token, Reply({REFUSED, "the push has not begun"})});
      return;
    }
    rounds_.Contribute(round, header.incarnation(), {token, request_id, std::move(results)});
    admitted = Settle(effects);
  }
  Answer(std::move(admitted), effects);
}

template <typename Mutex>
void EngineImpl<Mutex>::Forget(absl::Span<const RequestToken> tokens) {
  const ScopedLock<Mutex> lock(&control_);
  waiting_.Forget(tokens);
  rounds_.Forget(tokens);
  const auto forget = [tokens](auto* answers) {
    const auto gone = [tokens](const auto& answer) {
      return std::find(tokens.begin(), tokens.end(), answer.token) != tokens.end();
    };
    answers->erase(std::remove_if(answers->begin(), answers->end(), gone), answers->end());
  };
  forget(&orphans_.pulls);
  forget(&orphans_.pushes);
}

template <typename Mutex>
absl::StatusOr<int64_t> EngineImpl<Mutex>::ElementCountOf(uint32_t shard) const {
  const InstalledPtr installed = GetInstalled();
  const LockedShard* locked = installed == nullptr ? nullptr : installed->Find(shard);
  if (locked == nullptr) return absl::NotFoundError(absl::StrCat("shard ", shard, " isn't on this ps"));
  return locked->element_count;
}

}  // namespace lagrange

#endif  // PS_CORE_ENGINE_DATA_INL_H_

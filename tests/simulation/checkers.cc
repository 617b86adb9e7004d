#include "tests/simulation/checkers.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace lagrange::simulation {
namespace {

std::string Name(const BatchKey& key) {
  return absl::StrCat("batch (", key.epoch(), ", ", key.lease(), ", ", key.batch(), ")");
}

// Elements that have moved from their initial value, zero.
std::set<int64_t> BatchesIn(const ShardSnapshot& shard) {
  std::set<int64_t> batches;
  const absl::Span<const float> values = shard.parameters.values();
  for (size_t element = 0; element < values.size(); ++element) {
    if (values[element] != 0) batches.insert(static_cast<int64_t>(element));
  }
  return batches;
}

}  // namespace

// ---- applied once -------------------------------------------------------------------------------------------------

AppliedOnceChecker::AppliedOnceChecker(const BatchNumbering& numbering, int64_t shard_count)
    : numbering_(numbering),
      values_(shard_count, std::vector<float>(numbering.count(), 0)),
      applied_(shard_count, std::vector<int>(numbering.count(), 0)) {}

absl::Status AppliedOnceChecker::OnShards(const std::vector<ShardSnapshot>& shards) {
  for (const ShardSnapshot& shard : shards) {
    std::vector<float>& before = values_[shard.shard];
    const absl::Span<const float> now = shard.parameters.values();
    for (size_t batch = 0; batch < before.size(); ++batch) {
      if (now[batch] == before[batch]) continue;
      // An update moves its element by 1, or by its share of a round's mean: more is two updates in one call.
      const bool too_far = now[batch] - before[batch] > 1.5f;
      before[batch] = now[batch];
      if (too_far || ++applied_[shard.shard][batch] > 1) {
        return absl::InternalError(
            absl::StrCat("invariant 1: batch number ", batch, " was applied twice on shard ", shard.shard));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status AppliedOnceChecker::OnDone(const BatchKey& key) const {
  for (size_t shard = 0; shard < applied_.size(); ++shard) {
    if (applied_[shard][numbering_.NumberOf(key)] != 1) {
      return absl::InternalError(
          absl::StrCat("invariant 1: ", Name(key), " is reported done, but shard ", shard, " lacks it"));
    }
  }
  return absl::OkStatus();
}

absl::Status AppliedOnceChecker::OnEnd(const Durable& ledger) const {
  std::vector<bool> done(numbering_.count(), false);
  for (const auto& [key, record] : ledger.batches) {
    if (record.state != BatchState::kDone) continue;
    BatchKey batch;
    batch.set_epoch(record.epoch);
    batch.set_lease(record.lease);
    batch.set_batch(record.batch);
    done[numbering_.NumberOf(batch)] = true;
  }
  for (size_t shard = 0; shard < applied_.size(); ++shard) {
    for (int64_t batch = 0; batch < numbering_.count(); ++batch) {
      if (applied_[shard][batch] == (done[batch] ? 1 : 0)) continue;
      return absl::InternalError(absl::StrCat("invariant 1: at the end batch number ", batch, " is on shard ", shard,
                                              " ", applied_[shard][batch], " times, and the ledger has it ",
                                              done[batch] ? "done" : "not done"));
    }
  }
  return absl::OkStatus();
}

// ---- cuts ---------------------------------------------------------------------------------------------------------

void CutChecker::OnRead(const BatchKey& key, const std::vector<ShardSnapshot>& views) {
  const int64_t batch = numbering_.NumberOf(key);
  const bool first = common_reads_.find(batch) == common_reads_.end();
  std::map<uint32_t, std::set<int64_t>>& common = common_reads_[batch];
  for (const ShardSnapshot& view : views) {
    std::set<int64_t> seen = BatchesIn(view);
    if (first) {
      common[view.shard] = std::move(seen);
      continue;
    }
    std::set<int64_t> both;
    const std::set<int64_t>& before = common[view.shard];
    std::set_intersection(before.begin(), before.end(), seen.begin(), seen.end(), std::inserter(both, both.end()));
    common[view.shard] = std::move(both);
  }
}

void CutChecker::OnFork(uint64_t cut, const std::vector<ShardSnapshot>& shards) {
  for (const ShardSnapshot& shard : shards) forks_[cut][shard.shard] = BatchesIn(shard);
}

absl::Status CutChecker::OnManifest(const CheckpointManifest& manifest, int64_t shard_count) const {
  const auto found = forks_.find(manifest.cut());
  if (found == forks_.end() || static_cast<int64_t>(found->second.size()) != shard_count) {
    return absl::InternalError(
        absl::StrCat("invariant 4: the manifest of cut ", manifest.cut(), " is written before every shard's file"));
  }
  if (absl::Status status = CheckLedger(manifest.ledger(), found->second); !status.ok()) return status;
  return CheckCausality(manifest.cut(), found->second);
}

absl::Status CutChecker::CheckLedger(const CutLedger& ledger, const std::map<uint32_t, std::set<int64_t>>& held) const {
  const int64_t settled = ledger.epochs_complete() * numbering_.leases * numbering_.batches_per_lease;
  for (const auto& [shard, batches] : held) {
    // Nothing is skipped in these runs, and an epoch's end has no open lease: done is exactly the complete epochs.
    for (int64_t batch = 0; batch < settled; ++batch) {
      if (batches.count(batch) == 0) {
        return absl::InternalError(absl::StrCat("invariant 2: the cut's ledger has batch number ", batch,
                                                " done, shard ", shard, " lacks it"));
      }
    }
    if (!batches.empty() && *batches.rbegin() >= settled) {
      return absl::InternalError(absl::StrCat("invariant 2: shard ", shard, " holds batch number ", *batches.rbegin(),
                                              " of an epoch after the cut's"));
    }
  }
  return absl::OkStatus();
}

absl::Status CutChecker::CheckCausality(uint64_t cut, const std::map<uint32_t, std::set<int64_t>>& held) const {
  for (const auto& [shard, batches] : held) {
    for (const int64_t batch : batches) {
      const auto reads = common_reads_.find(batch);
      if (reads == common_reads_.end()) continue;
      for (const auto& [read_shard, seen] : reads->second) {
        const std::set<int64_t>& inside = held.at(read_shard);
        if (!std::includes(inside.begin(), inside.end(), seen.begin(), seen.end())) {
          return absl::InternalError(absl::StrCat("invariant 2: cut ", cut, " holds batch number ", batch,
                                                  ", computed from a state of shard ", read_shard, " outside it"));
        }
      }
    }
  }
  return absl::OkStatus();
}

// ---- staleness ----------------------------------------------------------------------------------------------------

void StalenessChecker::OnMembership(const SetMembership& change, const PsCommandResult& result) {
  for (const MemberChange& member : change.changes()) {
    Member& known = members_[member.incarnation()];
    if (member.sequence() < known.sequence || known.gone) continue;
    known.sequence = member.sequence();
    if (member.state() != MemberChange::JOINED) {
      known.in_table = false;
      known.gone = member.state() == MemberChange::EVICTED;
      continue;
    }
    // Also of one in the table already: the parking in between may have been overtaken.
    known.in_table = true;
    for (const JoinedClock& joined : result.joined()) {
      if (joined.incarnation() == member.incarnation()) known.clock = std::max(known.clock, joined.clock());
    }
  }
}

void StalenessChecker::OnRequest(const RequestHeader& header) {
  const auto found = members_.find(header.incarnation());
  if (found == members_.end() || !found->second.in_table) return;
  found->second.clock = std::max(found->second.clock, header.clock());
}

absl::Status StalenessChecker::OnPullAnswered(const RequestHeader& header) const {
  if (staleness_ < 0 || header.pinned_cut() != 0) return absl::OkStatus();
  for (const auto& [incarnation, member] : members_) {
    if (!member.in_table || member.clock >= header.step_clock() - staleness_) continue;
    return absl::InternalError(absl::StrCat("invariant 3: a pull at clock ", header.step_clock(), " of incarnation ",
                                            header.incarnation(), " was answered while incarnation ", incarnation,
                                            " is at ", member.clock, "; staleness is ", staleness_));
  }
  return absl::OkStatus();
}

// ---- waiting ------------------------------------------------------------------------------------------------------

void WaitChecker::OnPullArrived(int32_t ps, uint64_t incarnation, uint64_t request_id, absl::Time now) {
  waiting_.emplace(std::make_tuple(ps, incarnation, request_id), now);
}

void WaitChecker::OnPullAnswered(int32_t ps, uint64_t incarnation, uint64_t request_id) {
  waiting_.erase(std::make_tuple(ps, incarnation, request_id));
}

void WaitChecker::OnWorkerGone(uint64_t incarnation) {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    it = std::get<1>(it->first) == incarnation ? waiting_.erase(it) : std::next(it);
  }
}

void WaitChecker::OnChiefBack(absl::Time now) {
  for (auto& [who, since] : waiting_) since = now;
}

absl::Status WaitChecker::Check(absl::Time now) const {
  for (const auto& [who, since] : waiting_) {
    if (now - since <= limit_) continue;
    return absl::InternalError(absl::StrCat("invariant 5: incarnation ", std::get<1>(who), " has waited at ps ",
                                            std::get<0>(who), " for ", absl::FormatDuration(now - since)));
  }
  return absl::OkStatus();
}

}  // namespace lagrange::simulation

#include "ps/core/round_table.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "ps/core/shard.h"

namespace lagrange {

bool RoundTable::Open(int64_t round) {
  CHECK(!IsClosed(round));
  if (open_.count(round) != 0) return true;
  if (open_.size() >= Shard::kMaxOpenRounds) return false;
  open_[round];
  return true;
}

void RoundTable::Contribute(int64_t round, uint64_t incarnation, Contribution contribution) {
  const auto found = open_.find(round);
  CHECK(found != open_.end());
  found->second[incarnation] = Contributor{true, std::move(contribution)};
}

std::optional<int64_t> RoundTable::NextToClose(const ClockTable& clocks) const {
  if (open_.empty()) return std::nullopt;
  const int64_t first = open_.begin()->first;
  const bool settled = clocks.All([&](uint64_t incarnation, const ClockTable::Member& member) {
    if (member.clock > first) return true;
    return std::any_of(open_.begin(), open_.end(),
                       [&](const auto& round) { return round.second.count(incarnation) != 0; });
  });
  return settled ? std::optional<int64_t>(first) : std::nullopt;
}

std::vector<Contribution> RoundTable::Close(int64_t round) {
  std::vector<Contribution> waiting;
  while (!open_.empty() && open_.begin()->first <= round) {
    for (auto& [incarnation, contributor] : open_.begin()->second) TakeWaiting(&contributor, &waiting);
    open_.erase(open_.begin());
  }
  closed_round_ = std::max(closed_round_, round);
  return waiting;
}

void RoundTable::TakeWaiting(Contributor* contributor, std::vector<Contribution>* taken) {
  if (!contributor->waits) return;
  contributor->waits = false;
  taken->push_back(std::move(contributor->contribution));
}

std::vector<Contribution> RoundTable::TakeWaitingOf(uint64_t incarnation) {
  std::vector<Contribution> taken;
  for (auto& [round, contributors] : open_) {
    const auto found = contributors.find(incarnation);
    if (found != contributors.end()) TakeWaiting(&found->second, &taken);
  }
  return taken;
}

std::vector<Contribution> RoundTable::TakeAllWaiting() {
  std::vector<Contribution> taken;
  for (auto& [round, contributors] : open_) {
    for (auto& [incarnation, contributor] : contributors) TakeWaiting(&contributor, &taken);
  }
  return taken;
}

void RoundTable::Forget(absl::Span<const RequestToken> tokens) {
  for (auto& [round, contributors] : open_) {
    for (auto& [incarnation, contributor] : contributors) {
      const auto found = std::find(tokens.begin(), tokens.end(), contributor.contribution.token);
      if (found != tokens.end()) contributor.waits = false;
    }
  }
}

}  // namespace lagrange

#include "chief/core/retirement.h"

#include <algorithm>

namespace lagrange {
namespace {

// About 64 KiB of message; a chief that starts again may have more to tell.
constexpr size_t kMaxLeasesPerCommand = 4096;

}  // namespace

Retirement::Retirement(int32_t ps_count) : ps_(ps_count) {}

void Retirement::Add(const RetireLeases::Lease& lease) {
  std::set<int32_t>& waiting = waiting_[{lease.epoch(), lease.lease()}];
  for (int32_t i = 0; i < static_cast<int32_t>(ps_.size()); ++i) {
    waiting.insert(i);
    ps_[i].queue.push_back(lease);
  }
}

bool Retirement::NextFor(int32_t ps_index, RetireLeases* command) {
  Ps& ps = ps_[ps_index];
  if (ps.outstanding || ps.queue.empty()) return false;
  const auto end = ps.queue.begin() + std::min(ps.queue.size(), kMaxLeasesPerCommand);
  command->mutable_leases()->Assign(ps.queue.begin(), end);
  ps.queue.erase(ps.queue.begin(), end);
  ps.outstanding = true;
  return true;
}

std::vector<std::pair<int64_t, int64_t>> Retirement::Answered(int32_t ps_index, const RetireLeases& command) {
  ps_[ps_index].outstanding = false;
  std::vector<std::pair<int64_t, int64_t>> retired;
  for (const RetireLeases::Lease& lease : command.leases()) {
    const auto found = waiting_.find({lease.epoch(), lease.lease()});
    if (found == waiting_.end()) continue;
    found->second.erase(ps_index);
    if (!found->second.empty()) continue;
    retired.push_back(found->first);
    waiting_.erase(found);
  }
  return retired;
}

}  // namespace lagrange

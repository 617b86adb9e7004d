#include "ps/core/clock_table.h"

#include <algorithm>

#include "common/check.h"

namespace lagrange {

bool ClockTable::IsEvicted(uint64_t incarnation) const {
  if (evicted_.count(incarnation) != 0) return true;
  return incarnation <= evicted_floor_ && members_.count(incarnation) == 0;
}

std::optional<int64_t> ClockTable::Join(uint64_t incarnation, uint64_t sequence, int32_t task_index, int64_t floor) {
  if (IsEvicted(incarnation)) return std::nullopt;
  const auto found = members_.find(incarnation);
  if (found == members_.end() && members_.size() >= kMaxMembers) return std::nullopt;
  Member& member = found == members_.end() ? members_[incarnation] : found->second;
  if (sequence < member.sequence) return std::nullopt;
  if (member.in_table && sequence == member.sequence) return member.entry_clock;
  if (sequence == member.sequence && found != members_.end()) return std::nullopt;
  largest_clock_ = std::max(largest_clock_, floor);
  member.in_table = true;
  member.clock = largest_clock_;
  member.entry_clock = largest_clock_;
  member.sequence = sequence;
  member.task_index = task_index;
  member.pending_staleness = 0;
  return member.entry_clock;
}

bool ClockTable::Park(uint64_t incarnation, uint64_t sequence) {
  if (IsEvicted(incarnation)) return false;
  const auto found = members_.find(incarnation);
  if (found == members_.end() && members_.size() >= kMaxMembers) return false;
  // Kept even when it is new here: its JOINED of a lower sequence may still be on the way.
  Member& member = found == members_.end() ? members_[incarnation] : found->second;
  if (sequence < member.sequence) return false;
  member.in_table = false;
  member.sequence = sequence;
  return true;
}

bool ClockTable::Evict(uint64_t incarnation, uint64_t sequence) {
  if (IsEvicted(incarnation)) return false;
  const auto found = members_.find(incarnation);
  if (found != members_.end()) {
    if (sequence < found->second.sequence) return false;
    members_.erase(found);
  }
  evicted_.insert(incarnation);
  if (evicted_.size() > kMaxEvicted) {
    evicted_floor_ = std::max(evicted_floor_, *evicted_.begin());
    evicted_.erase(evicted_.begin());
  }
  return true;
}

ClockTable::Member* ClockTable::Find(uint64_t incarnation) {
  const auto found = members_.find(incarnation);
  return found == members_.end() || !found->second.in_table ? nullptr : &found->second;
}

const ClockTable::Member* ClockTable::Find(uint64_t incarnation) const {
  return const_cast<ClockTable*>(this)->Find(incarnation);
}

void ClockTable::Observe(uint64_t incarnation, int64_t clock) {
  Member* member = Find(incarnation);
  CHECK(member != nullptr);
  member->clock = std::max(member->clock, clock);
  largest_clock_ = std::max(largest_clock_, clock);
}

std::optional<int64_t> ClockTable::Min() const {
  std::optional<int64_t> min;
  for (const auto& [incarnation, member] : members_) {
    if (member.in_table) min = min.has_value() ? std::min(*min, member.clock) : member.clock;
  }
  return min;
}

}  // namespace lagrange

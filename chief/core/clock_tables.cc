#include "chief/core/clock_tables.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace lagrange {
namespace {

// A commit in each block instead of one for each join and park, which come with every epoch.
constexpr uint64_t kSequenceBlock = 1024;

}  // namespace

ClockTables::ClockTables(int32_t ps_count) : ps_count_(ps_count) {}

TableState ClockTables::StateOf(uint64_t incarnation) const {
  const auto found = entries_.find(incarnation);
  return found == entries_.end() ? TableState::kOut : found->second.state;
}

bool ClockTables::AllOut() const {
  return std::all_of(entries_.begin(), entries_.end(),
                     [](const auto& item) { return item.second.state == TableState::kOut; });
}

MemberChange ClockTables::Next(Member* member, MemberChange::State state, std::vector<Record>* records) {
  const uint64_t sequence = ++member->membership_sequence;
  if (sequence > member->record.membership_sequence_reserved) {
    member->record.membership_sequence_reserved = sequence + kSequenceBlock;
    records->push_back(member->record);
  }
  MemberChange change;
  change.set_incarnation(member->record.incarnation);
  change.set_task_index(member->record.task_index);
  change.set_sequence(sequence);
  change.set_state(state);
  return change;
}

MemberChange ClockTables::Join(Member* member, std::vector<Record>* records) {
  const MemberChange change = Next(member, MemberChange::JOINED, records);
  Entry& entry = entries_[change.incarnation()];
  entry = Entry();
  entry.state = TableState::kJoining;
  entry.sequence = change.sequence();
  for (int32_t i = 0; i < ps_count_; ++i) entry.waiting.insert(i);
  return change;
}

MemberChange ClockTables::Park(Member* member, std::vector<Record>* records) {
  const MemberChange change = Next(member, MemberChange::PARKED, records);
  entries_.erase(change.incarnation());
  return change;
}

MemberChange ClockTables::Evict(const MemberRecord& record) {
  entries_.erase(record.incarnation);
  MemberChange change;
  change.set_incarnation(record.incarnation);
  change.set_task_index(record.task_index);
  change.set_sequence(std::numeric_limits<int64_t>::max());
  change.set_state(MemberChange::EVICTED);
  return change;
}

void ClockTables::AssumeJoined(uint64_t incarnation) { entries_[incarnation].state = TableState::kJoined; }

bool ClockTables::Awaits(int32_t ps_index, const MemberChange& change) const {
  const auto found = entries_.find(change.incarnation());
  return found != entries_.end() && found->second.state == TableState::kJoining &&
         found->second.sequence == change.sequence() && found->second.waiting.count(ps_index) > 0;
}

void ClockTables::Answered(int32_t ps_index, const MemberChange& change, int64_t clock) {
  CHECK(Awaits(ps_index, change));
  Entry& entry = entries_.at(change.incarnation());
  entry.waiting.erase(ps_index);
  entry.clock = std::max(entry.clock, clock);
  if (entry.waiting.empty()) entry.state = TableState::kJoined;
}

int64_t ClockTables::StartClockOf(uint64_t incarnation) const {
  const auto found = entries_.find(incarnation);
  return found == entries_.end() ? -1 : found->second.clock;
}

}  // namespace lagrange

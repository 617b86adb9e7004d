// What the ps' clock tables have been told of each worker: joined, parked, evicted, and the clocks they answered.
//
// For the chief's core. Caller synchronizes. Numbers each change of an incarnation, so that a ps can tell an old one
// that arrives late. Commands go out at once and side by side; the numbers make their order unimportant.
//
// Invariant (3 of ARCHITECTURE.md): a worker counts as joined only when every ps has answered the join.

#ifndef CHIEF_CORE_CLOCK_TABLES_H_
#define CHIEF_CORE_CLOCK_TABLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "chief/core/membership.h"
#include "chief/core/records.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

enum class TableState { kOut, kJoining, kJoined };

class ClockTables {
 public:
  explicit ClockTables(int32_t ps_count);

  TableState StateOf(uint64_t incarnation) const;
  // Nobody is joined or joining.
  bool AllOut() const;

  // Each returns the change to send to every ps. The number may need a record.
  MemberChange Join(Member* member, std::vector<Record>* records);
  MemberChange Park(Member* member, std::vector<Record>* records);
  // For ever. Works from the record of a member that is gone: its number lies above all that could have been used.
  MemberChange Evict(const MemberRecord& record);
  // A holder of a lease after a restart of the chief: its join was answered by all before the lease was recorded.
  void AssumeJoined(uint64_t incarnation);

  // Whether this ps has yet to answer this JOINED change, and the change is still the worker's last.
  bool Awaits(int32_t ps_index, const MemberChange& change) const;
  // One ps answered a JOINED change with a clock. REQUIRES: Awaits(ps_index, change).
  void Answered(int32_t ps_index, const MemberChange& change, int64_t clock);
  // The largest clock answered to the last join. -1: never joined.
  int64_t StartClockOf(uint64_t incarnation) const;

 private:
  struct Entry {
    TableState state = TableState::kOut;
    uint64_t sequence = 0;
    std::set<int32_t> waiting;
    int64_t clock = -1;
  };
  MemberChange Next(Member* member, MemberChange::State state, std::vector<Record>* records);

  int32_t ps_count_;
  std::map<uint64_t, Entry> entries_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_CLOCK_TABLES_H_

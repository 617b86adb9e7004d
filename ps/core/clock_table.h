// Who takes part, and how far each has got: the table that decides which pulls wait.
//
// Changes of one incarnation carry a sequence; lower ones than seen are ignored, so commands may be repeated and
// reordered. An evicted incarnation never comes back. Caller synchronizes. Never blocks.
//
// Invariants: (C1) a member's clock never falls; (C2) a member enters at a clock >= every clock seen before; hence (C3)
// Min() falls only when the table was empty.

#ifndef PS_CORE_CLOCK_TABLE_H_
#define PS_CORE_CLOCK_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace lagrange {

class ClockTable {
 public:
  struct Member {
    bool in_table = false;
    int64_t clock = 0;
    // What the join was answered; a repeat gets the same.
    int64_t entry_clock = 0;
    uint64_t sequence = 0;
    int32_t task_index = 0;
    // Largest staleness_clocks of its pulls since its last push: the push names the epoch that it counts in.
    int64_t pending_staleness = 0;
  };

  // Members and parked ones: 1,024 workers, and their earlier selves that nobody has evicted yet.
  static constexpr size_t kMaxMembers = 65536;
  // Evicted incarnations remembered one by one; below the lowest of them everything unknown counts as evicted.
  static constexpr size_t kMaxEvicted = 4096;

  // The clock that it was entered at (at least `floor`): the largest seen. nullopt: ignored (older sequence, evicted,
  // or the table is full).
  std::optional<int64_t> Join(uint64_t incarnation, uint64_t sequence, int32_t task_index, int64_t floor);
  // False: ignored.
  bool Park(uint64_t incarnation, uint64_t sequence);
  bool Evict(uint64_t incarnation, uint64_t sequence);

  // Null unless it is in the table.
  Member* Find(uint64_t incarnation);
  const Member* Find(uint64_t incarnation) const;
  // Keeps the larger clock. REQUIRES: the incarnation is in the table.
  void Observe(uint64_t incarnation, int64_t clock);

  // Smallest clock in the table; nullopt when it is empty.
  std::optional<int64_t> Min() const;
  // Ever seen.
  int64_t largest_clock() const { return largest_clock_; }
  // Whether each one in the table satisfies the predicate (incarnation, member).
  template <typename Predicate>
  bool All(const Predicate& predicate) const {
    for (const auto& [incarnation, member] : members_) {
      if (member.in_table && !predicate(incarnation, member)) return false;
    }
    return true;
  }

 private:
  bool IsEvicted(uint64_t incarnation) const;

  std::map<uint64_t, Member> members_;

  std::set<uint64_t> evicted_;
  // Incarnations up to this that aren't in members_ count as evicted.
  uint64_t evicted_floor_ = 0;
  int64_t largest_clock_ = 0;
};

}  // namespace lagrange

#endif  // PS_CORE_CLOCK_TABLE_H_

// Who is a member: which process has which index, since when it has been silent, who may take its place.
//
// For the chief's core. A state machine: it decides and remembers, the caller commits and tells. Caller synchronizes.
// Holds live members only (at most the declared counts) and the processes that wait for an index (bounded).
//
// Taking over an index (B20): a process that asks for one which is held gets it once the holder has been silent for two
// heartbeat intervals; it is refused once the holder has been heard after the process first asked; in between it is
// told to ask again. So a fast restart is in within three intervals, and two live processes never share an index.

#ifndef CHIEF_CORE_MEMBERSHIP_H_
#define CHIEF_CORE_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "chief/core/records.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

struct Member {
  MemberRecord record;
  absl::Time last_heard;
  // Known from the records of an earlier chief alone: not heard of since this one started.
  bool assumed = false;
  // What its last heartbeat said.
  HeartbeatRequest heartbeat;
  // Last used number of SetMembership.
  uint64_t membership_sequence = 0;
};

// "worker 1 (incarnation 7, host-a:4711)".
std::string Describe(const MemberRecord& record);

class Membership {
 public:
  struct Options {
    int32_t ps_count = 0;
    int32_t worker_count = 0;
    absl::Duration heartbeat_interval;
    absl::Duration ps_lease;
    absl::Duration worker_lease;
  };

  // Every live member of the records gets a full lease from now.
  Membership(const Options& options, const std::map<uint64_t, MemberRecord>& records, absl::Time now);

  // ---- registration ----
  struct Seat {
    enum Kind { kFree, kTakeOver, kAskAgain, kRefused };
    Kind kind = kRefused;
    int32_t task_index = 0;
    // kTakeOver: the silent incarnation to evict first.
    uint64_t holder = 0;
    // kAskAgain and kRefused: names both sides.
    std::string message;
  };
  // Which index the process may have. Remembers when it asked first.
  Seat FindSeat(const RegisterRequest& request, absl::Time now);
  // REQUIRES: the seat is free.
  const Member& Admit(const RegisterRequest& request, int32_t task_index, uint64_t incarnation, absl::Time now);

  // ---- looking up ----
  // Null when not live.
  Member* Find(uint64_t incarnation);
  const Member* Find(uint64_t incarnation) const;
  const Member* AtIndex(Role role, int32_t task_index) const;
  const Member* OfProcess(Role role, uint64_t process_id) const;
  // By incarnation.
  const std::map<uint64_t, Member>& live() const { return live_; }
  int32_t LiveCount(Role role) const;
  // Live members of the role in the order of their index.
  std::vector<uint64_t> ByIndex(Role role) const;
  // "ps: 1 of 2 registered; workers: 0 of 2", what is complete left out; "" when nobody is missing. Who is only assumed
  // is missing: it may have died with the earlier chief.
  std::string Missing() const;

  // ---- time ----
  // Anything came from this member.
  void Heard(uint64_t incarnation, absl::Time now);
  // Everybody gets a full lease: we were away ourselves.
  void RenewAll(absl::Time now);
  absl::Duration LeaseOf(Role role) const;
  std::vector<uint64_t> Lapsed(absl::Time now) const;
  absl::Time next_lapse() const;

  // Takes a live member out; returns its record with the state set.
  MemberRecord Remove(uint64_t incarnation, MemberState state);

 private:
  int32_t CountOf(Role role) const;
  int32_t HeardCount(Role role) const;
  // How the holder of an index stands against a process that first asked at `asked`.
  Seat::Kind Judge(const Member& holder, absl::Time asked, absl::Time now) const;
  absl::Time FirstAsked(uint64_t process_id, absl::Time now);

  Options options_;
  std::map<uint64_t, Member> live_;
  // process_id -> when it first asked for an index that was held.
  std::map<uint64_t, absl::Time> asking_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_MEMBERSHIP_H_

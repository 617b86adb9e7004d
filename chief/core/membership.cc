#include "chief/core/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/check.h"

namespace lagrange {
namespace {

// Heartbeats that a holder may miss before its index can be taken over: one can be lost, two are a sign.
constexpr int kMissedHeartbeats = 2;
// Ten times as many as may be members at all; beyond that somebody floods us, and the oldest are forgotten.
constexpr size_t kMaxAsking = 20480;

std::string RoleName(Role role) { return role == PS ? "ps" : "worker"; }

}  // namespace

std::string Describe(const MemberRecord& record) {
  return absl::StrCat(RoleName(record.role), " ", record.task_index, " (incarnation ", record.incarnation, ", ",
                      record.host.empty() ? absl::StrCat("process ", record.process_id) : record.host, ")");
}

Membership::Membership(const Options& options, const std::map<uint64_t, MemberRecord>& records, absl::Time now)
    : options_(options) {
  for (const auto& [incarnation, record] : records) {
    if (record.state != MemberState::kLive) continue;
    Member& member = live_[incarnation];
    member.record = record;
    member.last_heard = now;
    member.assumed = true;
    // What was reserved may have been used.
    member.membership_sequence = record.membership_sequence_reserved;
  }
}

int32_t Membership::CountOf(Role role) const { return role == PS ? options_.ps_count : options_.worker_count; }

absl::Duration Membership::LeaseOf(Role role) const { return role == PS ? options_.ps_lease : options_.worker_lease; }

absl::Time Membership::FirstAsked(uint64_t process_id, absl::Time now) {
  const auto [entry, inserted] = asking_.emplace(process_id, now);
  if (inserted && asking_.size() > kMaxAsking) {
    auto oldest = asking_.begin();
    for (auto it = asking_.begin(); it != asking_.end(); ++it) {
      if (it->second < oldest->second) oldest = it;
    }
    if (oldest != entry) asking_.erase(oldest);
  }
  return entry->second;
}

Membership::Seat::Kind Membership::Judge(const Member& holder, absl::Time asked, absl::Time now) const {
  if (now - holder.last_heard > kMissedHeartbeats * options_.heartbeat_interval) return Seat::kTakeOver;
  // A message that was under way when the holder died may still come in just after.
  if (holder.last_heard > asked + options_.heartbeat_interval / 2) return Seat::kRefused;
  return Seat::kAskAgain;
}

Membership::Seat Membership::FindSeat(const RegisterRequest& request, absl::Time now) {
  const Role role = request.role();
  const int32_t count = CountOf(role);
  Seat seat;
  if (request.has_task_index() && (request.task_index() < 0 || request.task_index() >= count)) {
    seat.message = absl::StrCat(RoleName(role), " task_index ", request.task_index(), ": the job declares ", count, " ",
                                RoleName(role), " processes, indices 0 to ", count - 1);
    return seat;
  }
  const int32_t first = request.has_task_index() ? request.task_index() : 0;
  const int32_t last = request.has_task_index() ? request.task_index() : count - 1;
  for (int32_t index = first; index <= last; ++index) {
    if (AtIndex(role, index) != nullptr) continue;
    seat.kind = Seat::kFree;
    seat.task_index = index;
    return seat;
  }
  const absl::Time asked = FirstAsked(request.process_id(), now);
  std::vector<std::string> holders;
  for (int32_t index = first; index <= last; ++index) {
    const Member& holder = *AtIndex(role, index);
    const Seat::Kind kind = Judge(holder, asked, now);
    if (kind == Seat::kTakeOver) {
      seat.kind = kind;
      seat.task_index = index;
      seat.holder = holder.record.incarnation;
      return seat;
    }
    if (kind == Seat::kAskAgain) seat.kind = kind;
    holders.push_back(Describe(holder.record));
  }
  const std::string who = request.host().empty() ? absl::StrCat("process ", request.process_id()) : request.host();
  seat.message = request.has_task_index()
                     ? absl::StrCat(RoleName(role), " task_index ", first, ": asked for by ", who,
                                    ", held by the live ", holders[0])
                     : absl::StrCat(who, " is one more than the ", count, " ", RoleName(role),
                                    " processes that the job declares: ", absl::StrJoin(holders, ", "));
  if (seat.kind == Seat::kRefused) asking_.erase(request.process_id());
  return seat;
}

const Member& Membership::Admit(const RegisterRequest& request, int32_t task_index, uint64_t incarnation,
                                absl::Time now) {
  CHECK(AtIndex(request.role(), task_index) == nullptr);
  asking_.erase(request.process_id());
  Member& member = live_[incarnation];
  member.record.incarnation = incarnation;
  member.record.role = request.role();
  member.record.task_index = task_index;
  member.record.process_id = request.process_id();
  member.record.address = request.address();
  member.record.host = request.host();
  member.last_heard = now;
  return member;
}

Member* Membership::Find(uint64_t incarnation) {
  const auto found = live_.find(incarnation);
  return found == live_.end() ? nullptr : &found->second;
}

const Member* Membership::Find(uint64_t incarnation) const {
  const auto found = live_.find(incarnation);
  return found == live_.end() ? nullptr : &found->second;
}

const Member* Membership::AtIndex(Role role, int32_t task_index) const {
  for (const auto& [incarnation, member] : live_) {
    if (member.record.role == role && member.record.task_index == task_index) return &member;
  }
  return nullptr;
}

const Member* Membership::OfProcess(Role role, uint64_t process_id) const {
  for (const auto& [incarnation, member] : live_) {
    if (member.record.role == role && member.record.process_id == process_id) return &member;
  }
  return nullptr;
}

int32_t Membership::LiveCount(Role role) const {
  return static_cast<int32_t>(
      std::count_if(live_.begin(), live_.end(), [role](const auto& item) { return item.second.record.role == role; }));
}

std::vector<uint64_t> Membership::ByIndex(Role role) const {
  std::vector<std::pair<int32_t, uint64_t>> found;
  for (const auto& [incarnation, member] : live_) {
    if (member.record.role == role) found.emplace_back(member.record.task_index, incarnation);
  }
  std::sort(found.begin(), found.end());
  std::vector<uint64_t> incarnations;
  for (const auto& [index, incarnation] : found) incarnations.push_back(incarnation);
  return incarnations;
}

int32_t Membership::HeardCount(Role role) const {
  return static_cast<int32_t>(std::count_if(live_.begin(), live_.end(), [role](const auto& item) {
    return item.second.record.role == role && !item.second.assumed;
  }));
}

std::string Membership::Missing() const {
  std::vector<std::string> parts;
  if (HeardCount(PS) < options_.ps_count) {
    parts.push_back(absl::StrFormat("ps: %d of %d registered", HeardCount(PS), options_.ps_count));
  }
  if (HeardCount(WORKER) < options_.worker_count) {
    parts.push_back(absl::StrFormat("workers: %d of %d registered", HeardCount(WORKER), options_.worker_count));
  }
  return absl::StrJoin(parts, "; ");
}

void Membership::Heard(uint64_t incarnation, absl::Time now) {
  Member* member = Find(incarnation);
  if (member == nullptr) return;
  member->last_heard = std::max(member->last_heard, now);
  member->assumed = false;
}

void Membership::RenewAll(absl::Time now) {
  for (auto& [incarnation, member] : live_) member.last_heard = std::max(member.last_heard, now);
}

std::vector<uint64_t> Membership::Lapsed(absl::Time now) const {
  std::vector<uint64_t> lapsed;
  for (const auto& [incarnation, member] : live_) {
    if (now - member.last_heard >= LeaseOf(member.record.role)) lapsed.push_back(incarnation);
  }
  return lapsed;
}

absl::Time Membership::next_lapse() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [incarnation, member] : live_) {
    next = std::min(next, member.last_heard + LeaseOf(member.record.role));
  }
  return next;
}

MemberRecord Membership::Remove(uint64_t incarnation, MemberState state) {
  const auto found = live_.find(incarnation);
  CHECK(found != live_.end());
  MemberRecord record = std::move(found->second.record);
  record.state = state;
  live_.erase(found);
  return record;
}

}  // namespace lagrange

// Heartbeats, leaving, lapses, and the end of the job.

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "chief/core/chief_machine.h"

namespace lagrange {
namespace {

constexpr size_t kMaxGoneMembers = 1024;
// Of a message that a member sent and that is shown to people.
constexpr size_t kMaxMessageBytes = 1024;

}  // namespace

HeartbeatResponse ChiefMachine::Heartbeat(const HeartbeatRequest& request, absl::Time now, ChiefEffects* effects) {
  const Turn turn{now, effects};
  HeartbeatResponse response;
  Member* member = membership_.Find(request.incarnation());
  if (member != nullptr) {
    membership_.Heard(request.incarnation(), now);
    member->heartbeat = request;
    member->heartbeat.set_bad_push_message(request.bad_push_message().substr(0, kMaxMessageBytes));
    if (member->record.role == PS && !ended_ && request.bad_pushes() > job_.max_bad_pushes()) {
      Fail(absl::AbortedError(absl::StrCat(member->heartbeat.bad_push_message(), " (bad pushes: ", request.bad_pushes(),
                                           ", max_bad_pushes: ", job_.max_bad_pushes(), ")")),
           turn);
    }
  }
  response.set_directive(CurrentDirective());
  // A ps serves until the last worker is gone.
  if (member != nullptr && member->record.role == PS && ended_ && !shutting_down_) response.set_directive(CONTINUE);
  if (member == nullptr && !ended_) response.set_directive(REGISTER_AGAIN);
  if (ended_ && !end_status_.ok()) response.set_message(std::string(end_status_.message()));
  if (!ended_ && phase_ == Phase::kWaiting) {
    const std::string missing = membership_.Missing();
    if (!missing.empty()) response.set_waiting_for(absl::StrCat("waiting for ", missing));
  }
  Advance(turn);
  response.set_term(Counter("term"));
  response.set_generation(Counter("generation"));
  response.set_map_version(map_.version());
  return response;
}

Directive ChiefMachine::CurrentDirective() const {
  if (!ended_) return CONTINUE;
  return end_status_.ok() ? FINISH : ABORT;
}

void ChiefMachine::Leave(const LeaveRequest& request, absl::Time now, ChiefEffects* effects) {
  const Turn turn{now, effects};
  const Member* member = membership_.Find(request.incarnation());
  const std::string reason = request.reason().substr(0, kMaxMessageBytes);
  if (member == nullptr) {
    // A worker finds bad data before it registers. Once others train on theirs, the fault may be its machine's.
    if (request.incarnation() == 0 && request.failed() && request.fatal_for_job() && phase_ == Phase::kWaiting) {
      Fail(absl::InvalidArgumentError(absl::StrCat("a worker: ", reason)), turn);
    }
    return Advance(turn);
  }
  const std::string who = Describe(member->record);
  const bool is_ps = member->record.role == PS;
  Remove(request.incarnation(), MemberState::kLeft, request.failed() ? reason : "", turn);
  if (request.failed() && request.fatal_for_job()) {
    Fail(absl::InvalidArgumentError(absl::StrCat(who, ": ", reason)), turn);
  } else if (is_ps && phase_ != Phase::kWaiting) {
    Fail(absl::UnavailableError(absl::StrCat(who, " left with its shards", reason.empty() ? "" : ": ", reason)), turn);
  }
  Advance(turn);
}

void ChiefMachine::Remove(uint64_t incarnation, MemberState state, const std::string& why, Turn turn) {
  const MemberRecord record = membership_.Remove(incarnation, state);
  turn.effects->records.push_back(record);
  gone_[incarnation] = record;
  if (gone_.size() > kMaxGoneMembers) gone_.erase(gone_.begin());
  if (!ended_) {
    Progress(absl::StrCat(Describe(record), state == MemberState::kLeft ? " left" : " evicted", why.empty() ? "" : ": ",
                          why),
             turn);
  }
  if (record.role == PS) {
    shutdown_waiting_.erase(record.task_index);
    return;
  }
  if (membership_.LiveCount(WORKER) == 0) no_workers_since_ = turn.now;
  work_.erase(incarnation);
  gate_.erase(incarnation);
  if (evaluation_.has_value()) evaluation_->ReturnTaskOf(incarnation);
  if (ledger_.has_value() && !ended_) ledger_->FreeLeasesOf(incarnation, &turn.effects->records);
  if (phase_ != Phase::kTraining || ended_) return;
  SetMembership command;
  *command.add_changes() = tables_->Evict(record);
  TellTables(command, turn);
}

void ChiefMachine::TakeLapsed(Turn turn) {
  for (const uint64_t incarnation : membership_.Lapsed(turn.now)) {
    const MemberRecord record = membership_.Find(incarnation)->record;
    const std::string silent =
        absl::StrCat("not heard of for ", absl::FormatDuration(membership_.LeaseOf(record.role)));
    Remove(incarnation, MemberState::kEvicted, silent, turn);
    if (record.role == PS && phase_ != Phase::kWaiting && !ended_) {
      Fail(absl::UnavailableError(absl::StrCat(Describe(record), " is lost with its shards: ", silent)), turn);
    }
  }
  if (ended_) return;
  if (phase_ == Phase::kWaiting && turn.now - started_ >= options_.startup_timeout) {
    // Not recorded: nothing has begun, so the next chief on this state waits anew.
    return Announce(
        absl::DeadlineExceededError(absl::StrCat("gave up after ", absl::FormatDuration(options_.startup_timeout),
                                                 " waiting for ", membership_.Missing())),
        turn);
  }
  const absl::Duration patience = std::max(options_.startup_timeout, membership_.LeaseOf(WORKER));
  if (phase_ != Phase::kWaiting && membership_.LiveCount(WORKER) == 0 && turn.now - no_workers_since_ >= patience) {
    Fail(absl::UnavailableError(absl::StrCat("no live workers for ", absl::FormatDuration(patience))), turn);
  }
}

void ChiefMachine::Tick(absl::Time now, ChiefEffects* effects) {
  const Turn turn{now, effects};
  if (stopped_ || exited_) return;
  // A chief that was suspended finds everybody's messages waiting behind this tick: nobody but itself was silent.
  const absl::Duration shortest_lease = std::min(membership_.LeaseOf(PS), membership_.LeaseOf(WORKER));
  if (now - last_tick_ > std::max(shortest_lease / 2, 2 * options_.heartbeat_interval)) membership_.RenewAll(now);
  last_tick_ = now;
  TakeLapsed(turn);
  Advance(turn);
  commands_->Resend(now, effects);
}

absl::Time ChiefMachine::next_tick() const {
  if (stopped_ || exited_) return absl::InfiniteFuture();
  // At least once in a heartbeat interval, so that a longer gap tells that we were suspended.
  absl::Time next = std::min(commands_->next_resend(), membership_.next_lapse());
  next = std::min(next, last_tick_ + options_.heartbeat_interval);
  if (ended_) return std::min(next, farewell_deadline_);
  if (phase_ == Phase::kWaiting) return std::min(next, started_ + options_.startup_timeout);
  if (membership_.LiveCount(WORKER) == 0) {
    next = std::min(next, no_workers_since_ + std::max(options_.startup_timeout, membership_.LeaseOf(WORKER)));
  }
  return next;
}

void ChiefMachine::RequestStop(absl::Time now, ChiefEffects* effects) {
  if (stopped_ || exited_) return;
  stopped_ = true;
  effects->actions.push_back(ProgressAction{"stopping; a chief started on the same state directory goes on"});
  effects->actions.push_back(ExitAction{absl::CancelledError("stopped before the job's end; the state is kept")});
}

void ChiefMachine::Fail(const absl::Status& status, Turn turn) {
  if (ended_) return;
  turn.effects->records.push_back(EndRecord{status.code(), std::string(status.message())});
  Announce(status, turn);
}

void ChiefMachine::Announce(const absl::Status& status, Turn turn) {
  Progress(absl::StrCat("the job failed: ", status.message()), turn);
  End(status, turn);
}

void ChiefMachine::End(const absl::Status& status, Turn turn) {
  ended_ = true;
  end_status_ = status;
  farewell_deadline_ = turn.now + options_.farewell_timeout;
  // What ps still have to be told of the job doesn't matter any more.
  commands_->Drop();
  if (!status.ok()) SendShutDown(turn);
}

void ChiefMachine::SendShutDown(Turn turn) {
  shutting_down_ = true;
  // Once for the workers, once for the ps.
  farewell_deadline_ = turn.now + options_.farewell_timeout;
  PsCommand command;
  command.mutable_shut_down()->set_reason(std::string(end_status_.message()));
  for (const uint64_t incarnation : membership_.ByIndex(PS)) {
    const MemberRecord& record = membership_.Find(incarnation)->record;
    PsAddress ps;
    ps.set_ps_index(record.task_index);
    ps.set_address(record.address);
    ps.set_incarnation(record.incarnation);
    shutdown_waiting_.insert(record.task_index);
    commands_->Send(ps, command, turn.now, turn.effects);
  }
}

void ChiefMachine::AdvanceFarewell(Turn turn) {
  // Nobody's ps go while somebody may still use them: the last worker, not the first, ends the job.
  if (!shutting_down_ && (turn.now >= farewell_deadline_ || membership_.LiveCount(WORKER) == 0)) SendShutDown(turn);
  if (!shutting_down_ || exited_) return;
  if (turn.now < farewell_deadline_ && (!shutdown_waiting_.empty() || membership_.LiveCount(WORKER) > 0)) return;
  exited_ = true;
  commands_->Drop();
  turn.effects->actions.push_back(ExitAction{end_status_});
}

void ChiefMachine::Progress(std::string line, Turn turn) const {
  turn.effects->actions.push_back(ProgressAction{std::move(line)});
}

}  // namespace lagrange

#include "worker/core/step_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/core/step_loop_state.h"

namespace lagrange {
namespace {

// A worker that is fenced again and again registers at this rate at most: each registration is a commit of the chief.
constexpr absl::Duration kRegistrationPause = absl::Seconds(1);
// The chief may have exited by the time it is told; its lease would lapse anyway.
constexpr int kLeaveAttempts = 3;

}  // namespace

Lookahead LookaheadFor(const JobSpec& job) {
  const ConsistencySpec& consistency = job.consistency();
  const bool lockstep = consistency.has_bsp() || (consistency.has_ssp() && consistency.ssp().staleness() == 0);
  Lookahead lookahead;
  lookahead.prefetch = job.prefetch() && !lockstep;
  lookahead.acquire_ahead = !consistency.has_bsp();
  return lookahead;
}

StepLoopState::StepLoopState(const StepLoopOptions& options)
    : options_(options),
      lookahead_{options.prefetch, options.acquire_ahead},
      calls_(options.chief_timeout),
      reports_(options.report_interval),
      heartbeat_interval_(options.heartbeat_interval) {}

void StepLoopState::Start(absl::Time now, WorkerEffects* effects) {
  CHECK(phase_ == Phase::kNew);
  RegisterAnew(now);
  Advance(now, effects);
}

void StepLoopState::RegisterAnew(absl::Time now) {
  DropAll();
  if (stop_deadline_) {
    // Nothing is held, so there is nothing to hand back.
    exit_status_ = absl::OkStatus();
    phase_ = Phase::kLeaving;
    return;
  }
  incarnation_ = 0;
  clock_ = 0;
  heartbeat_due_ = absl::InfiniteFuture();
  phase_ = Phase::kRegistering;
  const absl::Time due = last_registration_ + kRegistrationPause;
  last_registration_ = std::max(now, due);
  calls_.Begin(CallRegister{}, due);
}

void StepLoopState::DropAll() {
  calls_.Clear();
  reports_.Clear();
  granted_.clear();
  lease_.reset();
  step_.reset();
  prefetch_.reset();
  evaluation_.reset();
  wants_map_ = false;
  paused_ask_ = Ask::kNothing;
  discards_result_ = busy_buffer_.has_value();
}

void StepLoopState::BeginLeave(const absl::Status& exit_status, const LeaveRequest& request) {
  DropAll();
  exit_status_ = exit_status;
  phase_ = Phase::kLeaving;
  CallLeave call;
  call.request = request;
  call.request.set_incarnation(incarnation_);
  leave_call_id_ = calls_.Begin(std::move(call));
}

void StepLoopState::LeaveAsFailed(const absl::Status& status) {
  LeaveRequest request;
  request.set_failed(true);
  request.set_reason(std::string(status.message()));
  BeginLeave(status, request);
}

void StepLoopState::Exit(const absl::Status& status, WorkerEffects* effects) {
  DropAll();
  phase_ = Phase::kExited;
  effects->push_back(WorkerExit{status});
}

void StepLoopState::OnLeaveResponse(uint64_t call_id, absl::Time now, WorkerEffects* effects) {
  if (calls_.Find<CallLeave>(call_id) == nullptr) return;
  Exit(exit_status_, effects);
}

void StepLoopState::OnChiefCallFailed(uint64_t call_id, const absl::Status& status, absl::Time now,
                                      WorkerEffects* effects) {
  if (phase_ == Phase::kExited) return;
  calls_.NoteFailure(call_id, status, now);
  Advance(now, effects);
}

void StepLoopState::OnStopRequested(absl::Time now, WorkerEffects* effects) {
  if (phase_ == Phase::kExited || stop_deadline_) return;
  stop_deadline_ = now + options_.stop_patience;
  if (phase_ == Phase::kRegistering) {
    Exit(absl::OkStatus(), effects);
    return;
  }
  Advance(now, effects);
}

void StepLoopState::CheckStop(absl::Time now) {
  if (!stop_deadline_) return;
  DropPrefetch();
  granted_.clear();
  // A pull changes nothing, and its wait may be long; a computation would only be lost.
  if (step_ && step_->stage == Stage::kPulling) step_.reset();
  if (evaluation_) {
    evaluation_.reset();
    discards_result_ = busy_buffer_.has_value();
  }
  if (!step_) {
    lease_.reset();
    reports_.Flush();
  }
  const bool settled = !step_ && reports_.empty();
  if (settled || now >= *stop_deadline_) BeginLeave(absl::OkStatus(), LeaveRequest());
}

void StepLoopState::CheckPatience(absl::Time now, WorkerEffects* effects) {
  if (calls_.failing_since() == absl::InfiniteFuture()) return;
  const absl::Duration patience = was_registered_ ? options_.chief_patience : options_.startup_timeout;
  if (now < calls_.failing_since() + patience) return;
  Exit(absl::UnavailableError(absl::StrCat("gave up waiting for the chief after ", absl::FormatDuration(patience), ": ",
                                           calls_.last_failure().message())),
       effects);
}

void StepLoopState::Advance(absl::Time now, WorkerEffects* effects) {
  bool changed = true;
  while (changed && phase_ == Phase::kWorking) {
    CheckStop(now);
    changed = phase_ == Phase::kWorking &&
              (AdvanceStep(now, effects) || AdvanceEvaluation(now, effects) || StartNextWork(now));
  }
  if (phase_ == Phase::kWorking) {
    SendReport(now);
    AskForWork(now);
  }
  if (phase_ == Phase::kLeaving) {
    const bool told = calls_.SendCount(leave_call_id_) >= kLeaveAttempts && calls_.next_due() <= now;
    if (told || calls_.next_due() == absl::InfiniteFuture()) Exit(exit_status_, effects);
  }
  SendEverythingDue(now, effects);
}

void StepLoopState::SendEverythingDue(absl::Time now, WorkerEffects* effects) {
  if (phase_ == Phase::kExited) return;
  if (phase_ != Phase::kLeaving) CheckPatience(now, effects);
  if (phase_ == Phase::kExited) return;
  if (step_) SendPulls(&step_->pull, now, effects);
  if (evaluation_) SendPulls(&evaluation_->pull, now, effects);
  if (prefetch_) SendPulls(&*prefetch_, now, effects);
  if (step_) SendPushes(now, effects);
  SendHeartbeat(now, effects);
  calls_.SendDue(term_, now, effects);
}

void StepLoopState::SendHeartbeat(absl::Time now, WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || now < heartbeat_due_) return;
  heartbeat_due_ = now + heartbeat_interval_;
  CallHeartbeat call;
  call.call_id = calls_.NextId();
  call.request.set_incarnation(incarnation_);
  call.request.set_term(term_);
  call.request.set_clock(clock_);
  effects->push_back(std::move(call));
}

absl::Time StepLoopState::next_tick() const {
  if (phase_ == Phase::kNew || phase_ == Phase::kExited) return absl::InfiniteFuture();
  absl::Time next = calls_.next_due();
  if (calls_.failing_since() != absl::InfiniteFuture() && phase_ != Phase::kLeaving) {
    const absl::Duration patience = was_registered_ ? options_.chief_patience : options_.startup_timeout;
    next = std::min(next, calls_.failing_since() + patience);
  }
  if (phase_ != Phase::kWorking) return next;
  next = std::min({next, heartbeat_due_, reports_.next_due()});
  next = std::min(next, AcquireDue());
  if (stop_deadline_) next = std::min(next, *stop_deadline_);
  if (step_) next = std::min({next, step_->pull.exchange.next_due(), step_->push.next_due()});
  if (prefetch_) next = std::min(next, prefetch_->exchange.next_due());
  if (evaluation_) next = std::min(next, evaluation_->pull.exchange.next_due());
  return next;
}

std::unique_ptr<StepLoop> NewStepLoop(const StepLoopOptions& options) {
  return std::make_unique<StepLoopState>(options);
}

}  // namespace lagrange

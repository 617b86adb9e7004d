// The step loop's dealings with the chief: registration, directives, work, reports.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "worker/core/step_loop_state.h"

namespace lagrange {
namespace {

absl::Duration DurationOf(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

// What a chief may ask for; others would stop the worker or spin it.
constexpr absl::Duration kMinHeartbeatInterval = absl::Milliseconds(10);
constexpr absl::Duration kMaxHeartbeatInterval = absl::Minutes(1);
constexpr absl::Duration kMinAcquirePause = absl::Milliseconds(1);
constexpr absl::Duration kMaxAcquirePause = absl::Seconds(10);

}  // namespace

bool StepLoopState::AdoptTerm(uint64_t term) {
  if (term < term_) return false;
  term_ = term;
  calls_.NoteAnswer();
  return true;
}

bool StepLoopState::FollowDirective(Directive directive, const std::string& message, uint64_t generation,
                                    absl::Time now) {
  if (directive == ABORT) {
    // The chief waits for its workers' farewell before it ends, too.
    BeginLeave(absl::AbortedError(absl::StrCat("the job failed", message.empty() ? "" : ": ", message)),
               LeaveRequest());
    return true;
  }
  if (directive == FINISH) {
    BeginLeave(absl::OkStatus(), LeaveRequest());
    return true;
  }
  if (directive == REGISTER_AGAIN || generation > generation_) {
    RegisterAnew(now);
    return true;
  }
  return false;
}

void StepLoopState::OnRegisterResponse(uint64_t call_id, const RegisterResponse& response, absl::Time now,
                                       WorkerEffects* effects) {
  if (phase_ != Phase::kRegistering || calls_.Find<CallRegister>(call_id) == nullptr) return;
  calls_.NoteAnswer();
  if (response.outcome() == RegisterResponse::JOB_IS_COMPLETE) return Exit(absl::OkStatus(), effects);
  if (response.outcome() != RegisterResponse::REGISTERED || !cutter_) {
    return Exit(
        absl::FailedPreconditionError(absl::StrCat("the chief refused to register this worker: ", response.message())),
        effects);
  }
  calls_.End(call_id);
  incarnation_ = response.incarnation();
  term_ = response.term();
  generation_ = response.generation();
  if (response.has_heartbeat_interval()) {
    heartbeat_interval_ =
        std::clamp(DurationOf(response.heartbeat_interval()), kMinHeartbeatInterval, kMaxHeartbeatInterval);
  }
  heartbeat_due_ = now;
  first_call_id_ = calls_.NextId();
  sequence_ = 1;
  was_registered_ = true;
  phase_ = Phase::kWorking;
  Advance(now, effects);
}

void StepLoopState::OnHeartbeatResponse(uint64_t call_id, const HeartbeatResponse& response, absl::Time now,
                                        WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || call_id < first_call_id_ || !AdoptTerm(response.term())) return;
  FollowDirective(response.directive(), response.message(), response.generation(), now);
  Advance(now, effects);
}

void StepLoopState::OnAcquireWorkResponse(uint64_t call_id, const AcquireWorkResponse& response, absl::Time now,
                                          WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || calls_.Find<CallAcquireWork>(call_id) == nullptr) return;
  if (!AdoptTerm(response.term())) return;
  const Ask ask = calls_.Find<CallAcquireWork>(call_id)->request.ahead() ? Ask::kAhead : Ask::kWork;
  calls_.End(call_id);
  if (!FollowDirective(response.directive(), response.message(), response.generation(), now)) {
    wants_map_ = false;
    if (response.has_shard_map()) UseMap(response.shard_map(), now, effects);
    TakeWork(response, ask, now);
  }
  Advance(now, effects);
}

void StepLoopState::TakeWork(const AcquireWorkResponse& response, Ask ask, absl::Time now) {
  paused_ask_ = Ask::kNothing;
  if (response.has_lease()) {
    granted_.emplace_back(response.lease());
    ++sequence_;
  } else if (response.has_evaluation()) {
    granted_.emplace_back(response.evaluation());
    ++sequence_;
  } else {
    const absl::Duration pause = DurationOf(response.retry_after());
    paused_ask_ = ask;
    acquire_after_ = now + std::clamp(pause, kMinAcquirePause, kMaxAcquirePause);
  }
}

void StepLoopState::UseMap(const ShardMap& map, absl::Time now, WorkerEffects* effects) {
  if (map.version() <= map_.version() || map.ps_size() == 0) return;
  const bool same_placement = SamePlacement(map_, map);
  if (step_ && step_->stage == Stage::kPushing) {
    if (same_placement && !step_->push.has_moved()) {
      step_->push.ExpireAll();
    } else {
      step_->push.Replan(map_, map, now, &next_request_id_);
      step_->push.Hold([this](int32_t ps_index) { return prefetch_ && !prefetch_->exchange.Answered(ps_index); });
    }
  }
  for (Pull* pull : {step_ && step_->stage == Stage::kPulling ? &step_->pull : nullptr,
                     prefetch_ ? &*prefetch_ : nullptr, evaluation_ ? &evaluation_->pull : nullptr}) {
    if (pull == nullptr || pull->exchange.complete()) continue;
    if (same_placement) {
      pull->exchange.ExpireAll();
    } else {
      pull->exchange.Begin(map, &next_request_id_);
    }
  }
  map_ = map;
  effects->push_back(UseShardMap{map});
}

bool StepLoopState::StartNextWork(absl::Time now) {
  if (step_ || evaluation_ || stop_deadline_ || map_.version() == 0) return false;
  if (lease_ && !lease_->todo.empty()) {
    BeginStep();
    return true;
  }
  if (lease_) {
    lease_.reset();
    reports_.Flush();
  }
  DropPrefetch();
  if (granted_.empty()) return false;
  if (std::holds_alternative<EvaluationTask>(granted_.front()) && calls_.IsOutstanding<CallReportEvaluation>()) {
    return false;
  }
  const Work work = std::move(granted_.front());
  granted_.pop_front();
  if (const auto* grant = std::get_if<LeaseGrant>(&work)) return StartLease(*grant);
  evaluation_ = Evaluation();
  evaluation_->task = std::get<EvaluationTask>(work);
  last_buffer_ = 1;
  BeginPull(&evaluation_->pull, clock_, evaluation_->task.cut());
  return true;
}

bool StepLoopState::StartLease(const LeaseGrant& grant) {
  if (grant.epoch() < 0 || grant.lease() < 0 || grant.lease() >= cutter_->lease_count()) {
    LeaveAsFailed(
        absl::InternalError(absl::StrCat("the chief granted lease ", grant.lease(), " of epoch ", grant.epoch(),
                                         ", expected leases [0, ", cutter_->lease_count(), ")")));
    return true;
  }
  if (grant.has_start_clock()) clock_ = std::max(clock_, grant.start_clock());
  const std::set<int32_t> settled(grant.settled_batches().begin(), grant.settled_batches().end());
  lease_ = Lease();
  lease_->grant = grant;
  const int64_t batches = cutter_->BatchesIn(grant.lease());
  for (int32_t batch = 0; batch < batches; ++batch) {
    if (settled.count(batch) == 0) lease_->todo.push_back(batch);
  }
  return true;
}

StepLoopState::Ask StepLoopState::WantedWork() const {
  if (calls_.IsOutstanding<CallAcquireWork>() || calls_.IsOutstanding<CallReportEvaluation>()) return Ask::kNothing;
  if (stop_deadline_) return wants_map_ ? Ask::kAhead : Ask::kNothing;
  const bool idle = !step_ && !evaluation_ && !lease_ && granted_.empty();
  // Asking without `ahead` says that nothing is left to report: else the chief would give the same lease again.
  if (idle) return reports_.empty() ? Ask::kWork : Ask::kNothing;
  if (wants_map_ || map_.version() == 0) return Ask::kAhead;
  const bool last_batch = step_ && lease_ && lease_->todo.empty();
  return lookahead_.acquire_ahead && last_batch && granted_.empty() ? Ask::kAhead : Ask::kNothing;
}

absl::Time StepLoopState::AcquireDue() const {
  const Ask ask = WantedWork();
  if (ask == Ask::kNothing) return absl::InfiniteFuture();
  return ask == paused_ask_ && !wants_map_ ? acquire_after_ : absl::InfinitePast();
}

void StepLoopState::AskForWork(absl::Time now) {
  if (!step_ && !evaluation_ && !lease_ && granted_.empty()) reports_.Flush();
  SendReport(now);
  if (AcquireDue() > now) return;
  const bool ahead = WantedWork() == Ask::kAhead;
  CallAcquireWork call;
  call.request.set_incarnation(incarnation_);
  call.request.set_generation(generation_);
  call.request.set_sequence(sequence_);
  call.request.set_map_version(map_.version());
  call.request.set_ahead(ahead);
  calls_.Begin(std::move(call));
}

void StepLoopState::SendReport(absl::Time now) {
  if (reports_.next_due() > now || calls_.IsOutstanding<CallReportBatches>()) return;
  CallReportBatches call;
  call.request = reports_.Take();
  call.request.set_incarnation(incarnation_);
  call.request.set_generation(generation_);
  calls_.Begin(std::move(call));
}

void StepLoopState::OnReportBatchesResponse(uint64_t call_id, const ReportBatchesResponse& response, absl::Time now,
                                            WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || calls_.Find<CallReportBatches>(call_id) == nullptr) return;
  if (!AdoptTerm(response.term())) return;
  calls_.End(call_id);
  if (!FollowDirective(response.directive(), response.message(), response.generation(), now)) {
    for (const auto& [epoch, lease] : reports_.OnResponse(response, now + kChiefRetryPause)) DropLease(epoch, lease);
  }
  Advance(now, effects);
}

void StepLoopState::DropLease(int64_t epoch, int64_t lease) {
  if (lease_ && lease_->grant.epoch() == epoch && lease_->grant.lease() == lease) {
    lease_->todo.clear();
    lease_->lost = true;
    DropPrefetch();
  }
  granted_.erase(std::remove_if(granted_.begin(), granted_.end(),
                                [epoch, lease](const Work& work) {
                                  const auto* grant = std::get_if<LeaseGrant>(&work);
                                  return grant != nullptr && grant->epoch() == epoch && grant->lease() == lease;
                                }),
                 granted_.end());
}

void StepLoopState::OnReportEvaluationResponse(uint64_t call_id, const ReportEvaluationResponse& response,
                                               absl::Time now, WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || calls_.Find<CallReportEvaluation>(call_id) == nullptr) return;
  if (!AdoptTerm(response.term())) return;
  calls_.End(call_id);
  FollowDirective(response.directive(), "", response.generation(), now);
  Advance(now, effects);
}

}  // namespace lagrange

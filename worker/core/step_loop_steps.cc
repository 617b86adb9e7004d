// The step loop's dealings with the ps: pull, compute, push, evaluation.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "worker/core/step_loop_state.h"

namespace lagrange {
namespace {

// Until a ps is asked again that was not ready, or that has not heard of a map yet.
constexpr absl::Duration kPsRetryPause = absl::Milliseconds(100);

bool IsBroken(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInternal || status.code() == absl::StatusCode::kUnknown;
}

}  // namespace

int StepLoopState::FreeBuffer() const {
  const int next = 1 - last_buffer_;
  return busy_buffer_ == next ? 1 - next : next;
}

void StepLoopState::BeginPull(Pull* pull, int64_t step_clock, uint64_t pinned_cut) {
  pull->buffer = FreeBuffer();
  pull->step_clock = step_clock;
  pull->pinned_cut = pinned_cut;
  pull->exchange.Begin(map_, &next_request_id_);
  last_buffer_ = pull->buffer;
}

void StepLoopState::BeginStep() {
  step_ = Step();
  step_->key.set_epoch(lease_->grant.epoch());
  step_->key.set_lease(lease_->grant.lease());
  step_->key.set_batch(lease_->todo.front());
  lease_->todo.pop_front();
  step_->clock = clock_;
  if (prefetch_ && prefetch_->step_clock < clock_) DropPrefetch();
  if (prefetch_) {
    step_->pull = *std::move(prefetch_);
    prefetch_.reset();
  } else {
    BeginPull(&step_->pull, clock_, 0);
  }
}

void StepLoopState::BeginPrefetch() {
  if (!lookahead_.prefetch || stop_deadline_ || prefetch_ || !lease_ || lease_->todo.empty()) return;
  prefetch_.emplace();
  BeginPull(&*prefetch_, clock_ + 1, 0);
}

void StepLoopState::DropPrefetch() {
  if (!prefetch_) return;
  prefetch_.reset();
  if (step_) step_->push.ReleaseAll();
}

bool StepLoopState::AdvanceStep(absl::Time now, WorkerEffects* effects) {
  if (!step_) return false;
  if (step_->stage == Stage::kPulling) {
    if (!step_->pull.exchange.complete() || busy_buffer_) return false;
    step_->stage = Stage::kComputing;
    busy_buffer_ = step_->pull.buffer;
    effects->push_back(StartCompute{step_->key, step_->pull.buffer});
    BeginPrefetch();
    return true;
  }
  if (step_->stage == Stage::kPushing && step_->push.complete()) {
    FinishStep(now);
    return true;
  }
  return false;
}

void StepLoopState::FinishStep(absl::Time now) {
  ++clock_;
  if (step_->late) {
    // All have answered, so the clock went on; shards that hold the batch already will count an empty contribution.
    if (lease_ && !lease_->lost) lease_->todo.push_front(step_->key.batch());
    step_.reset();
    return;
  }
  BatchDone done;
  *done.mutable_key() = step_->key;
  done.set_cut(step_->largest_ack_cut);
  done.set_example_count(step_->example_count);
  done.set_loss_sum(step_->loss_sum);
  reports_.AddDone(done, now);
  step_.reset();
}

void StepLoopState::OnComputed(const ComputeResult& result, absl::Time now, WorkerEffects* effects) {
  busy_buffer_.reset();
  if (phase_ == Phase::kExited || phase_ == Phase::kLeaving) return;
  if (IsBroken(result.status)) {
    if (phase_ == Phase::kRegistering) return Exit(result.status, effects);
    LeaveAsFailed(result.status);
  } else if (discards_result_ || !step_ || step_->stage != Stage::kComputing) {
    discards_result_ = false;
  } else if (!result.status.ok()) {
    BatchSkipped skipped;
    *skipped.mutable_key() = step_->key;
    skipped.set_reason(std::string(result.status.message()));
    skipped.set_example_count(result.example_count);
    reports_.AddSkipped(skipped, now);
    step_.reset();
  } else {
    step_->stage = Stage::kPushing;
    step_->example_count = result.example_count;
    step_->loss_sum = result.loss_sum;
    step_->push.Begin(map_, &next_request_id_);
    step_->push.Hold([this](int32_t ps_index) { return prefetch_ && !prefetch_->exchange.Answered(ps_index); });
  }
  Advance(now, effects);
}

bool StepLoopState::AdvanceEvaluation(absl::Time now, WorkerEffects* effects) {
  if (!evaluation_ || evaluation_->stage != Stage::kPulling) return false;
  if (!evaluation_->pull.exchange.complete() || busy_buffer_) return false;
  evaluation_->stage = Stage::kComputing;
  busy_buffer_ = evaluation_->pull.buffer;
  effects->push_back(StartEvaluation{evaluation_->task, evaluation_->pull.buffer});
  return true;
}

void StepLoopState::ReportEvaluation(const EvaluationResult* result) {
  CallReportEvaluation call;
  call.request.set_incarnation(incarnation_);
  call.request.set_generation(generation_);
  *call.request.mutable_task() = evaluation_->task;
  if (result == nullptr) {
    call.request.set_abandoned(true);
  } else {
    call.request.set_loss_sum(result->loss_sum);
    call.request.set_correct_count(result->correct_count);
    call.request.set_example_count(result->example_count);
  }
  calls_.Begin(std::move(call));
  evaluation_.reset();
}

void StepLoopState::OnEvaluated(const EvaluationResult& result, absl::Time now, WorkerEffects* effects) {
  busy_buffer_.reset();
  if (phase_ == Phase::kExited || phase_ == Phase::kLeaving) return;
  if (!result.status.ok()) {
    if (phase_ == Phase::kRegistering) return Exit(result.status, effects);
    LeaveAsFailed(result.status);
  } else if (discards_result_ || !evaluation_ || evaluation_->stage != Stage::kComputing) {
    discards_result_ = false;
  } else {
    ReportEvaluation(&result);
  }
  Advance(now, effects);
}

StepLoopState::Pull* StepLoopState::FindPull(int32_t ps_index, uint64_t request_id, PsExchange::Request** request) {
  for (Pull* pull : {step_ ? &step_->pull : nullptr, prefetch_ ? &*prefetch_ : nullptr,
                     evaluation_ ? &evaluation_->pull : nullptr}) {
    if (pull == nullptr) continue;
    *request = pull->exchange.FindOpen(ps_index, request_id);
    if (*request != nullptr) return pull;
  }
  return nullptr;
}

void StepLoopState::OnPullReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                                WorkerEffects* effects) {
  if (phase_ != Phase::kWorking) return;
  PsExchange::Request* request = nullptr;
  Pull* pull = FindPull(ps_index, request_id, &request);
  if (pull == nullptr) return;
  if (reply.code() == OK) {
    request->answered = true;
    pull->largest_cut = std::max(pull->largest_cut, reply.cut());
    if (prefetch_ && pull == &*prefetch_ && step_) step_->push.Release(ps_index);
  } else if (reply.code() == NO_SUCH_CUT && evaluation_ && pull == &evaluation_->pull) {
    ReportEvaluation(nullptr);
  } else {
    OnRefusal(ps_index, reply, request, now);
  }
  Advance(now, effects);
}

void StepLoopState::OnPushReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                                WorkerEffects* effects) {
  if (phase_ != Phase::kWorking || !step_ || step_->stage != Stage::kPushing) return;
  PsExchange::Request* request = step_->push.FindOpen(ps_index, request_id);
  if (request == nullptr) return;
  if (reply.code() == OK) {
    request->answered = true;
    step_->largest_ack_cut = std::max(step_->largest_ack_cut, reply.cut());
    for (const ShardResult& result : reply.results()) {
      if (result.outcome() == LATE) step_->late = true;
      if (result.outcome() == MOVED) step_->push.AddMoved(result.shard());
    }
    if (step_->push.has_moved()) {
      if (reply.map_version() > map_.version()) {
        wants_map_ = true;
      } else {
        step_->push.Replan(map_, map_, now + kPsRetryPause, &next_request_id_);
      }
    }
  } else {
    OnRefusal(ps_index, reply, request, now);
  }
  Advance(now, effects);
}

void StepLoopState::OnRefusal(int32_t ps_index, const ReplyHeader& reply, PsExchange::Request* request,
                              absl::Time now) {
  switch (reply.code()) {
    case UNAVAILABLE:
      request->due = now + kPsRetryPause;
      return;
    case STALE_MAP:
      request->due = now + kPsRetryPause;
      if (reply.map_version() > map_.version()) wants_map_ = true;
      return;
    case STALE_GENERATION:
      // A chief that started again while this worker holds its registration: only the term has grown.
      if (reply.generation() <= generation_ && reply.term() > term_) {
        term_ = reply.term();
        request->due = absl::InfinitePast();
        return;
      }
      RegisterAnew(now);
      return;
    case FENCED:
      RegisterAnew(now);
      return;
    default:
      LeaveAsFailed(absl::InternalError(absl::StrCat("ps ", ps_index, " refused a request of this worker (",
                                                     ReplyCode_Name(reply.code()), "): ", reply.message())));
  }
}

void StepLoopState::OnPsReconnected(int32_t ps_index, absl::Time now, WorkerEffects* effects) {
  if (step_) {
    step_->pull.exchange.ExpireRequestsTo(ps_index);
    step_->push.ExpireRequestsTo(ps_index);
  }
  if (prefetch_) prefetch_->exchange.ExpireRequestsTo(ps_index);
  if (evaluation_) evaluation_->pull.exchange.ExpireRequestsTo(ps_index);
  Advance(now, effects);
}

RequestHeader StepLoopState::MakeHeader(int64_t step_clock) const {
  RequestHeader header;
  header.set_protocol_version(kProtocolVersion);
  header.set_term(term_);
  header.set_generation(generation_);
  header.set_map_version(map_.version());
  header.set_incarnation(incarnation_);
  header.set_clock(clock_);
  header.set_step_clock(step_clock);
  return header;
}

void StepLoopState::SendPulls(Pull* pull, absl::Time now, WorkerEffects* effects) {
  pull->exchange.SendDue(now, options_.request_timeout, [&](const PsExchange::Request& request) {
    RequestHeader header = MakeHeader(pull->step_clock);
    header.set_pinned_cut(pull->pinned_cut);
    effects->push_back(SendPull{request.ps_index, request.request_id, std::move(header), pull->buffer});
  });
}

void StepLoopState::SendPushes(absl::Time now, WorkerEffects* effects) {
  step_->push.SendDue(now, options_.request_timeout, [&](const PsExchange::Request& request) {
    RequestHeader header = MakeHeader(step_->clock);
    header.set_cut(step_->pull.largest_cut);
    *header.mutable_key() = step_->key;
    header.set_example_count(step_->example_count);
    effects->push_back(
        SendPush{request.ps_index, request.request_id, std::move(header), request.shards, step_->pull.buffer});
  });
}

}  // namespace lagrange

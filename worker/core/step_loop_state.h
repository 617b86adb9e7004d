// The step loop's class, for its three source files: step_loop.cc (events and phases), step_loop_chief.cc (answers of
// the chief, work), step_loop_steps.cc (pull, compute, push, evaluation). Nobody else includes it; the contract is
// step_loop.h's.

#ifndef WORKER_CORE_STEP_LOOP_STATE_H_
#define WORKER_CORE_STEP_LOOP_STATE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/batch_cutter.h"
#include "worker/core/batch_reports.h"
#include "worker/core/chief_calls.h"
#include "worker/core/ps_exchange.h"
#include "worker/core/step_loop.h"

namespace lagrange {

class StepLoopState : public StepLoop {
 public:
  explicit StepLoopState(const StepLoopOptions& options);

  void Start(absl::Time now, WorkerEffects* effects) override;
  void UseCutter(const BatchCutter& cutter) override { cutter_ = cutter; }
  void UseLookahead(const Lookahead& lookahead) override { lookahead_ = lookahead; }
  void OnRegisterResponse(uint64_t call_id, const RegisterResponse& response, absl::Time now,
                          WorkerEffects* effects) override;
  void OnHeartbeatResponse(uint64_t call_id, const HeartbeatResponse& response, absl::Time now,
                           WorkerEffects* effects) override;
  void OnAcquireWorkResponse(uint64_t call_id, const AcquireWorkResponse& response, absl::Time now,
                             WorkerEffects* effects) override;
  void OnReportBatchesResponse(uint64_t call_id, const ReportBatchesResponse& response, absl::Time now,
                               WorkerEffects* effects) override;
  void OnReportEvaluationResponse(uint64_t call_id, const ReportEvaluationResponse& response, absl::Time now,
                                  WorkerEffects* effects) override;
  void OnLeaveResponse(uint64_t call_id, absl::Time now, WorkerEffects* effects) override;
  void OnChiefCallFailed(uint64_t call_id, const absl::Status& status, absl::Time now, WorkerEffects* effects) override;
  void OnPullReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                   WorkerEffects* effects) override;
  void OnPushReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                   WorkerEffects* effects) override;
  void OnPsReconnected(int32_t ps_index, absl::Time now, WorkerEffects* effects) override;
  void OnComputed(const ComputeResult& result, absl::Time now, WorkerEffects* effects) override;
  void OnEvaluated(const EvaluationResult& result, absl::Time now, WorkerEffects* effects) override;
  void OnStopRequested(absl::Time now, WorkerEffects* effects) override;
  void Tick(absl::Time now, WorkerEffects* effects) override { Advance(now, effects); }
  absl::Time next_tick() const override;
  int64_t clock() const override { return clock_; }
  uint64_t incarnation() const override { return incarnation_; }

 private:
  enum class Phase { kNew, kRegistering, kWorking, kLeaving, kExited };
  enum class Stage { kPulling, kComputing, kPushing };

  struct Pull {
    PsExchange exchange;
    int buffer = 0;
    int64_t step_clock = 0;
    uint64_t pinned_cut = 0;
    // Of the replies so far.
    uint64_t largest_cut = 0;
  };

  struct Step {
    BatchKey key;
    Stage stage = Stage::kPulling;
    // Of the worker when the step began.
    int64_t clock = 0;
    Pull pull;
    PsExchange push;
    int64_t example_count = 0;
    double loss_sum = 0;
    uint64_t largest_ack_cut = 0;
    bool late = false;
  };

  struct Evaluation {
    EvaluationTask task;
    Stage stage = Stage::kPulling;
    Pull pull;
  };

  struct Lease {
    LeaseGrant grant;
    // Batches still to compute, in rising order.
    std::deque<int32_t> todo;
    // The chief says that it is another worker's by now.
    bool lost = false;
  };

  using Work = std::variant<LeaseGrant, EvaluationTask>;

  // What to ask for now, if anything: nothing is asked twice at a time.
  enum class Ask { kNothing, kAhead, kWork };

  // ---- step_loop.cc
  // Everything that the state now allows: the last thing that each event does.
  void Advance(absl::Time now, WorkerEffects* effects);
  void SendEverythingDue(absl::Time now, WorkerEffects* effects);
  void SendHeartbeat(absl::Time now, WorkerEffects* effects);
  void CheckPatience(absl::Time now, WorkerEffects* effects);
  void CheckStop(absl::Time now);
  void RegisterAnew(absl::Time now);
  void DropAll();
  void BeginLeave(const absl::Status& exit_status, const LeaveRequest& request);
  void LeaveAsFailed(const absl::Status& status);
  void Exit(const absl::Status& status, WorkerEffects* effects);

  // ---- step_loop_chief.cc
  // False: the answer is of a chief before the one we know.
  bool AdoptTerm(uint64_t term);
  // True: the directive or the generation ends what the worker does; the answer has nothing more to say.
  bool FollowDirective(Directive directive, const std::string& message, uint64_t generation, absl::Time now);
  void TakeWork(const AcquireWorkResponse& response, Ask ask, absl::Time now);
  void UseMap(const ShardMap& map, absl::Time now, WorkerEffects* effects);
  // True: something changed.
  bool StartNextWork(absl::Time now);
  bool StartLease(const LeaseGrant& grant);
  Ask WantedWork() const;
  absl::Time AcquireDue() const;
  void AskForWork(absl::Time now);
  void SendReport(absl::Time now);
  void DropLease(int64_t epoch, int64_t lease);

  // ---- step_loop_steps.cc
  void BeginPull(Pull* pull, int64_t step_clock, uint64_t pinned_cut);
  void BeginStep();
  bool AdvanceStep(absl::Time now, WorkerEffects* effects);
  bool AdvanceEvaluation(absl::Time now, WorkerEffects* effects);
  void FinishStep(absl::Time now);
  // Null: abandoned.
  void ReportEvaluation(const EvaluationResult* result);
  void BeginPrefetch();
  void DropPrefetch();
  Pull* FindPull(int32_t ps_index, uint64_t request_id, PsExchange::Request** request);
  // What every refusal comes to; request->due is when it goes out again.
  void OnRefusal(int32_t ps_index, const ReplyHeader& reply, PsExchange::Request* request, absl::Time now);
  RequestHeader MakeHeader(int64_t step_clock) const;
  void SendPulls(Pull* pull, absl::Time now, WorkerEffects* effects);
  void SendPushes(absl::Time now, WorkerEffects* effects);
  int FreeBuffer() const;

  const StepLoopOptions options_;
  Lookahead lookahead_;
  std::optional<BatchCutter> cutter_;
  Phase phase_ = Phase::kNew;
  absl::Status exit_status_;
  uint64_t leave_call_id_ = 0;
  bool was_registered_ = false;
  std::optional<absl::Time> stop_deadline_;

  uint64_t term_ = 0;
  uint64_t generation_ = 0;
  uint64_t incarnation_ = 0;
  int64_t clock_ = 0;
  ShardMap map_;

  ChiefCalls calls_;
  BatchReports reports_;
  // Heartbeats with lower ids are of an incarnation before.
  uint64_t first_call_id_ = 0;
  absl::Duration heartbeat_interval_;
  absl::Time heartbeat_due_ = absl::InfiniteFuture();
  absl::Time last_registration_ = absl::InfinitePast();

  // Of AcquireWork: grows when an answer brought work.
  uint64_t sequence_ = 1;
  // The chief had nothing for such an ask: not again before. Another kind of ask isn't bound by it.
  absl::Time acquire_after_ = absl::InfinitePast();
  Ask paused_ask_ = Ask::kNothing;
  // A ps knows a newer map.
  bool wants_map_ = false;
  std::deque<Work> granted_;
  std::optional<Lease> lease_;

  uint64_t next_request_id_ = 1;
  std::optional<Step> step_;
  std::optional<Pull> prefetch_;
  std::optional<Evaluation> evaluation_;
  // Buffer of the last pull that was begun; the next one takes the other.
  int last_buffer_ = 1;
  // The shell computes (or evaluates) from this buffer.
  std::optional<int> busy_buffer_;
  // What it computes is of no use any more.
  bool discards_result_ = false;
};

}  // namespace lagrange

#endif  // WORKER_CORE_STEP_LOOP_STATE_H_

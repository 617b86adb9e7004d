// The decisions of a worker: which batch next, when to pull, compute, push, report, ask for work, and when to stop.
//
// For the daemon (worker/worker.h) and the simulation, which both drive this very class. A state machine: events in,
// effects out; no thread, socket, clock or tensor. Caller synchronizes.
//
// A step at clock c: pull of all ps (or the one prefetched during step c-1) -> compute -> push to all ps under the
// batch's key with the stamp = largest cut in the pull's replies -> all acknowledged: clock c+1, Done to the chief.
// Every step addresses every ps of the map. A request without an answer is sent again after request_timeout, the same
// request_id; a ps that answers `moved` or STALE_MAP makes it fetch the map; FENCED, STALE_GENERATION or
// REGISTER_AGAIN make it drop step, prefetch and lease and register anew. A shard answering LATE makes the batch
// compute again.
//
// Prefetch: while step c computes, the next batch of the lease is pulled for into the other buffer, and the push of
// step c goes to a ps only when that ps has answered the prefetched pull. So what is prefetched holds exactly the steps
// before c, and one worker alone always computes the same. For the same reason the first step of a lease pulls anew:
// whether the next lease is known in time depends on the chief.

#ifndef WORKER_CORE_STEP_LOOP_H_
#define WORKER_CORE_STEP_LOOP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/batch_cutter.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"
#include "proto/job.pb.h"
#include "worker/core/worker_effects.h"

namespace lagrange {

// How far a worker may run ahead of itself.
struct Lookahead {
  // Pull for the next step while this one computes. False under bsp and ssp{0}: it counts as one clock of staleness.
  bool prefetch = true;
  // Ask for the next lease while the last batch of this one is computed. False under bsp: its leases are given out in
  // rounds.
  bool acquire_ahead = true;
};

// What a job (its defaults filled in) allows.
Lookahead LookaheadFor(const JobSpec& job);

struct StepLoopOptions {
  // See Lookahead.
  bool prefetch = true;
  bool acquire_ahead = true;
  // Pulls and pushes.
  absl::Duration request_timeout = absl::Seconds(20);
  // Calls to the chief.
  absl::Duration chief_timeout = absl::Seconds(5);
  // Dones are bundled for so long at most.
  absl::Duration report_interval = absl::Milliseconds(200);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // The chief may be gone (restarting) for so long before the worker gives up...
  absl::Duration chief_patience = absl::Minutes(5);
  // ... and for so long before the worker has registered for the first time.
  absl::Duration startup_timeout = absl::Minutes(5);
  // A stop request waits so long for the step and the last report; then the lease is handed back without them.
  absl::Duration stop_patience = absl::Seconds(10);
};

// ---- events --------------------------------------------------------------------------------------------------------

struct ComputeResult {
  int64_t example_count = 0;
  double loss_sum = 0;
  // Not OK: the batch can't be pushed (non-finite gradient, row that can't be read): it is reported as skipped, with
  // this message. Internal or Unknown mean that the worker itself is broken: it leaves as failed.
  absl::Status status;
};

struct EvaluationResult {
  int64_t example_count = 0;
  int64_t correct_count = 0;
  double loss_sum = 0;
  absl::Status status;
};

class StepLoop {
 public:
  virtual ~StepLoop() = default;

  // First of all: emits CallRegister.
  virtual void Start(absl::Time now, WorkerEffects* effects) = 0;
  // The job's leases and batches. REQUIRES: called before OnRegisterResponse(REGISTERED).
  virtual void UseCutter(const BatchCutter& cutter) = 0;
  // In place of the options', when the job is known only by now. REQUIRES: as UseCutter.
  virtual void UseLookahead(const Lookahead& lookahead) = 0;
  // REGISTERED (again after REGISTER_AGAIN), REFUSED_REGISTRATION or JOB_IS_COMPLETE; JOB is handled by the shell,
  // which builds the model and registers again within the same call.
  virtual void OnRegisterResponse(uint64_t call_id, const RegisterResponse& response, absl::Time now,
                                  WorkerEffects* effects) = 0;
  virtual void OnHeartbeatResponse(uint64_t call_id, const HeartbeatResponse& response, absl::Time now,
                                   WorkerEffects* effects) = 0;
  virtual void OnAcquireWorkResponse(uint64_t call_id, const AcquireWorkResponse& response, absl::Time now,
                                     WorkerEffects* effects) = 0;
  virtual void OnReportBatchesResponse(uint64_t call_id, const ReportBatchesResponse& response, absl::Time now,
                                       WorkerEffects* effects) = 0;
  virtual void OnReportEvaluationResponse(uint64_t call_id, const ReportEvaluationResponse& response, absl::Time now,
                                          WorkerEffects* effects) = 0;
  virtual void OnLeaveResponse(uint64_t call_id, absl::Time now, WorkerEffects* effects) = 0;
  // The call failed on the way (the chief is away): sent again after a pause, until chief_patience is over.
  virtual void OnChiefCallFailed(uint64_t call_id, const absl::Status& status, absl::Time now,
                                 WorkerEffects* effects) = 0;

  virtual void OnPullReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                           WorkerEffects* effects) = 0;
  virtual void OnPushReply(int32_t ps_index, uint64_t request_id, const ReplyHeader& reply, absl::Time now,
                           WorkerEffects* effects) = 0;
  // The connection to a ps broke and is up again: what is outstanding there is sent again at once.
  virtual void OnPsReconnected(int32_t ps_index, absl::Time now, WorkerEffects* effects) = 0;

  virtual void OnComputed(const ComputeResult& result, absl::Time now, WorkerEffects* effects) = 0;
  virtual void OnEvaluated(const EvaluationResult& result, absl::Time now, WorkerEffects* effects) = 0;

  // SIGTERM: finish the step, report, hand back the lease, exit 0.
  virtual void OnStopRequested(absl::Time now, WorkerEffects* effects) = 0;

  virtual void Tick(absl::Time now, WorkerEffects* effects) = 0;
  virtual absl::Time next_tick() const = 0;

  virtual int64_t clock() const = 0;
  virtual uint64_t incarnation() const = 0;
};

std::unique_ptr<StepLoop> NewStepLoop(const StepLoopOptions& options);

}  // namespace lagrange

#endif  // WORKER_CORE_STEP_LOOP_H_

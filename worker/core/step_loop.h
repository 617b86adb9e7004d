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
// Parameters live in two buffers of the shell, 0 and 1: the step's and the prefetched one's.

#ifndef WORKER_CORE_STEP_LOOP_H_
#define WORKER_CORE_STEP_LOOP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/batch_cutter.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

struct StepLoopOptions {
  // Pull for the next step while this one computes. The caller sets it false under bsp and ssp{0}.
  bool prefetch = true;
  // Ask for the next lease while the last batch of this one is computed. False under bsp: its leases are given out in
  // rounds.
  bool acquire_ahead = true;
  // Pulls and pushes.
  absl::Duration request_timeout = absl::Seconds(20);
  // Calls to the chief.
  absl::Duration chief_timeout = absl::Seconds(5);
  // Dones are bundled for so long at most.
  absl::Duration report_interval = absl::Milliseconds(200);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // The chief may be gone (restarting) for so long before the worker gives up.
  absl::Duration chief_patience = absl::Minutes(5);
};

// ---- effects -------------------------------------------------------------------------------------------------------

// Sends the pull to this ps; the answer's bytes go to parameter buffer `buffer`.
struct SendPull {
  int32_t ps_index = 0;
  uint64_t request_id = 0;
  RequestHeader header;
  int buffer = 0;
};

// Sends the step's gradients of the shards on this ps (all that the map says, or only `shards` when not empty). The
// gradients stay unchanged until the next StartCompute. Versions to echo are those of parameter buffer `buffer`.
struct SendPush {
  int32_t ps_index = 0;
  uint64_t request_id = 0;
  RequestHeader header;
  std::vector<uint32_t> shards;
  int buffer = 0;
};

// Gradient of the batch from parameter buffer `buffer`, checked finite; comes back as OnComputed.
struct StartCompute {
  BatchKey key;
  int buffer = 0;
};

// Evaluate the records with the parameters in `buffer` (pulled at the task's cut); comes back as OnEvaluated.
struct StartEvaluation {
  EvaluationTask task;
  int buffer = 0;
};

// The job's map changed: connect to these ps, lay out parameters. Synchronous, nothing comes back.
struct UseShardMap {
  ShardMap map;
};

// Calls to the chief; the answers come back through On...Response with the same call_id.
struct CallRegister {
  uint64_t call_id = 0;
};
struct CallHeartbeat {
  uint64_t call_id = 0;
  HeartbeatRequest request;
};
struct CallAcquireWork {
  uint64_t call_id = 0;
  AcquireWorkRequest request;
};
struct CallReportBatches {
  uint64_t call_id = 0;
  ReportBatchesRequest request;
};
struct CallReportEvaluation {
  uint64_t call_id = 0;
  ReportEvaluationRequest request;
};
struct CallLeave {
  uint64_t call_id = 0;
  LeaveRequest request;
};

// The process may end with this status (OK: exit 0).
struct WorkerExit {
  absl::Status status;
};

using WorkerEffect = std::variant<SendPull, SendPush, StartCompute, StartEvaluation, UseShardMap, CallRegister,
                                  CallHeartbeat, CallAcquireWork, CallReportBatches, CallReportEvaluation, CallLeave,
                                  WorkerExit>;
using WorkerEffects = std::vector<WorkerEffect>;

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
  // REGISTERED (again after REGISTER_AGAIN), REFUSED_REGISTRATION or JOB_IS_COMPLETE; JOB is handled by the shell, which
  // builds the model and registers again within the same call.
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

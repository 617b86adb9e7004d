// What the step loop asks its shell to do, in order.
//
// Plain values; each says what comes back. Parameters live in two buffers of the shell, 0 and 1: the step's and the
// prefetched one's.

#ifndef WORKER_CORE_WORKER_EFFECTS_H_
#define WORKER_CORE_WORKER_EFFECTS_H_

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

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

using WorkerEffect =
    std::variant<SendPull, SendPush, StartCompute, StartEvaluation, UseShardMap, CallRegister, CallHeartbeat,
                 CallAcquireWork, CallReportBatches, CallReportEvaluation, CallLeave, WorkerExit>;
using WorkerEffects = std::vector<WorkerEffect>;

}  // namespace lagrange

#endif  // WORKER_CORE_WORKER_EFFECTS_H_

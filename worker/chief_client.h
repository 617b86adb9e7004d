// The worker's calls to the chief.
//
// Thread-safe. Each call is answered exactly once, on a thread of the client: with the response, or Unavailable or
// DeadlineExceeded that name the chief's address and the cause ("chief:7000: name not resolved", "...: connection
// refused"). Callbacks must not block. Nothing is repeated here: worker/core/step_loop.h decides that.

#ifndef WORKER_CHIEF_CLIENT_H_
#define WORKER_CHIEF_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class ChiefClient {
 public:
  template <typename Response>
  using Callback = std::function<void(const absl::StatusOr<Response>&)>;

  // Cancels what is outstanding and waits for its callbacks.
  virtual ~ChiefClient() = default;

  virtual void Register(const RegisterRequest& request, Callback<RegisterResponse> done) = 0;
  virtual void Heartbeat(const HeartbeatRequest& request, Callback<HeartbeatResponse> done) = 0;
  virtual void AcquireWork(const AcquireWorkRequest& request, Callback<AcquireWorkResponse> done) = 0;
  virtual void ReportBatches(const ReportBatchesRequest& request, Callback<ReportBatchesResponse> done) = 0;
  virtual void ReportEvaluation(const ReportEvaluationRequest& request, Callback<ReportEvaluationResponse> done) = 0;
  virtual void Leave(const LeaveRequest& request, Callback<LeaveResponse> done) = 0;
};

// Of each call.
std::unique_ptr<ChiefClient> NewChiefClient(const std::string& address, absl::Duration timeout);

// gRPC's words for a failed call, in ours: what people can act on comes first.
absl::Status DescribeCallFailure(absl::string_view address, absl::StatusCode code, absl::string_view grpc_message);

}  // namespace lagrange

#endif  // WORKER_CHIEF_CLIENT_H_

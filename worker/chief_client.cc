#include "worker/chief_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/channel_arguments.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {
namespace {

class GrpcChiefClient final : public ChiefClient {
 public:
  GrpcChiefClient(const std::string& address, absl::Duration timeout)
      : address_(address),
        timeout_(timeout),
        stub_(ChiefService::NewStub(
            grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), ClientChannelArguments()))) {}

  ~GrpcChiefClient() override {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    for (grpc::ClientContext* context : outstanding_) context->TryCancel();
    mutex_.Await(absl::Condition(
        +[](std::set<grpc::ClientContext*>* outstanding) { return outstanding->empty(); }, &outstanding_));
  }

  void Register(const RegisterRequest& request, Callback<RegisterResponse> done) override {
    Begin(&ChiefService::Stub::async::Register, request, std::move(done));
  }
  void Heartbeat(const HeartbeatRequest& request, Callback<HeartbeatResponse> done) override {
    Begin(&ChiefService::Stub::async::Heartbeat, request, std::move(done));
  }
  void AcquireWork(const AcquireWorkRequest& request, Callback<AcquireWorkResponse> done) override {
    Begin(&ChiefService::Stub::async::AcquireWork, request, std::move(done));
  }
  void ReportBatches(const ReportBatchesRequest& request, Callback<ReportBatchesResponse> done) override {
    Begin(&ChiefService::Stub::async::ReportBatches, request, std::move(done));
  }
  void ReportEvaluation(const ReportEvaluationRequest& request, Callback<ReportEvaluationResponse> done) override {
    Begin(&ChiefService::Stub::async::ReportEvaluation, request, std::move(done));
  }
  void Leave(const LeaveRequest& request, Callback<LeaveResponse> done) override {
    Begin(&ChiefService::Stub::async::Leave, request, std::move(done));
  }

 private:
  template <typename Request, typename Response>
  struct Call {
    grpc::ClientContext context;
    Request request;
    Response response;
    Callback<Response> done;
  };

  template <typename Request, typename Response>
  using Method = void (ChiefService::Stub::async::*)(grpc::ClientContext*, const Request*, Response*,
                                                     std::function<void(grpc::Status)>);

  template <typename Request, typename Response>
  void Begin(Method<Request, Response> method, const Request& request, Callback<Response> done) {
    auto* call = new Call<Request, Response>{{}, request, {}, std::move(done)};
    call->context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout_));
    {
      absl::MutexLock lock(&mutex_);
      outstanding_.insert(&call->context);
      if (ending_) call->context.TryCancel();
    }
    (stub_->async()->*method)(&call->context, &call->request, &call->response,
                              [this, call](const grpc::Status& status) { End(call, status); });
  }

  template <typename Request, typename Response>
  void End(Call<Request, Response>* call, const grpc::Status& status) {
    if (status.ok()) {
      call->done(std::move(call->response));
    } else {
      call->done(
          DescribeCallFailure(address_, static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
    }
    absl::MutexLock lock(&mutex_);
    outstanding_.erase(&call->context);
    delete call;
  }

  const std::string address_;
  const absl::Duration timeout_;
  // Taken under no other lock; none is taken under it.
  absl::Mutex mutex_;
  // Calls that have not come back. Bounded by the step loop: one of a kind, and heartbeats within the timeout.
  std::set<grpc::ClientContext*> outstanding_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<ChiefService::Stub> stub_;
};

}  // namespace

std::unique_ptr<ChiefClient> NewChiefClient(const std::string& address, absl::Duration timeout) {
  return std::make_unique<GrpcChiefClient>(address, timeout);
}

absl::Status DescribeCallFailure(absl::string_view address, absl::StatusCode code, absl::string_view grpc_message) {
  absl::string_view cause = grpc_message;
  const std::string words = absl::AsciiStrToLower(grpc_message);
  if (absl::StrContains(words, "connection refused")) {
    cause = "connection refused";
  } else if (absl::StrContains(words, "dns resolution failed") || absl::StrContains(words, "name resolution")) {
    cause = "name not resolved";
  } else if (code == absl::StatusCode::kDeadlineExceeded) {
    cause = "no answer in time";
  }
  return absl::Status(code, absl::StrCat(address, ": ", cause));
}

}  // namespace lagrange

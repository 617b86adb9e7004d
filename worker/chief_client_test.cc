#include "worker/chief_client.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "proto/channel_arguments.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {
namespace {

class SmallChief final : public ChiefService::CallbackService {
 public:
  SmallChief() {
    grpc::ServerBuilder builder;
    ApplyServerArguments(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~SmallChief() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const RegisterRequest* request,
                                     RegisterResponse* response) override {
    response->set_incarnation(request->process_id() + 1);
    return Finish(context, grpc::Status::OK);
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const HeartbeatRequest*,
                                      HeartbeatResponse*) override {
    return Finish(context, grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such member"));
  }
  // Answers when the caller has gone away.
  grpc::ServerUnaryReactor* AcquireWork(grpc::CallbackServerContext*, const AcquireWorkRequest*,
                                        AcquireWorkResponse*) override {
    class UntilCancelled final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new UntilCancelled;
  }

 private:
  static grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context, const grpc::Status& status) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

TEST(ChiefClient, CallBringsItsAnswer) {
  SmallChief chief;
  const auto client = NewChiefClient(chief.address(), absl::Seconds(30));
  RegisterRequest request;
  request.set_process_id(41);
  absl::Notification done;
  client->Register(request, [&](const absl::StatusOr<RegisterResponse>& response) {
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_EQ(response->incarnation(), 42u);
    done.Notify();
  });
  done.WaitForNotification();
}

TEST(ChiefClient, RefusalKeepsItsCodeAndNamesTheChief) {
  SmallChief chief;
  const auto client = NewChiefClient(chief.address(), absl::Seconds(30));
  absl::Notification done;
  client->Heartbeat({}, [&](const absl::StatusOr<HeartbeatResponse>& response) {
    EXPECT_EQ(response.status(), absl::InvalidArgumentError(absl::StrCat(chief.address(), ": no such member")));
    done.Notify();
  });
  done.WaitForNotification();
}

TEST(ChiefClient, DestructionAnswersWhatIsOutstanding) {
  SmallChief chief;
  absl::Status status;
  {
    const auto client = NewChiefClient(chief.address(), absl::Seconds(30));
    client->AcquireWork({}, [&](const absl::StatusOr<AcquireWorkResponse>& response) { status = response.status(); });
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
}

TEST(ChiefClient, SilentChiefRunsIntoTheTimeout) {
  SmallChief chief;
  const auto client = NewChiefClient(chief.address(), absl::Milliseconds(1));
  absl::Notification done;
  client->AcquireWork({}, [&](const absl::StatusOr<AcquireWorkResponse>& response) {
    EXPECT_EQ(response.status().code(), absl::StatusCode::kDeadlineExceeded);
    done.Notify();
  });
  done.WaitForNotification();
}

TEST(DescribeCallFailure, TellsRefusedFromNotResolved) {
  const auto describe = [](absl::string_view message) {
    return std::string(DescribeCallFailure("chief:7000", absl::StatusCode::kUnavailable, message).message());
  };
  EXPECT_EQ(describe("failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to "
                     "remote host: Connection refused"),
            "chief:7000: connection refused");
  EXPECT_EQ(describe("DNS resolution failed for chief:7000: C-ares status is not ARES_SUCCESS qtype=A"),
            "chief:7000: name not resolved");
  EXPECT_EQ(describe("Socket closed"), "chief:7000: Socket closed");
}

}  // namespace
}  // namespace lagrange

#include "chief/chief_service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/status_matchers.h"
#include "common/version.h"
#include "proto/channel_arguments.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

// What a test waits for or looks at, written by the thread of decisions.
struct CoreLog {
  absl::Mutex mutex;
  std::vector<std::string> lines ABSL_GUARDED_BY(mutex);

  void Add(const std::string& line) {
    absl::MutexLock lock(&mutex);
    lines.push_back(line);
  }
  std::string WaitFor(const std::string& prefix) {
    std::string found;
    absl::MutexLock lock(&mutex);
    const auto is_there = [&]() {
      mutex.AssertHeld();
      for (const std::string& line : lines) {
        if (line.rfind(prefix, 0) == 0) found = line;
      }
      return !found.empty();
    };
    mutex.Await(absl::Condition(&is_there));
    return found;
  }
};

// A core whose effects a test chooses: `on_register` at each Register, the rest is written down.
class ScriptedCore : public ChiefCore {
 public:
  explicit ScriptedCore(CoreLog* log) : log_(log) {}

  std::function<void(ChiefEffects*)> on_register = [](ChiefEffects*) {};
  absl::Time tick_at = absl::InfiniteFuture();

  RegisterResponse Register(const RegisterRequest& request, absl::Time, ChiefEffects* effects) override {
    log_->Add("register " + request.host());
    on_register(effects);
    RegisterResponse response;
    response.set_incarnation(request.process_id() + 1);
    return response;
  }
  HeartbeatResponse Heartbeat(const HeartbeatRequest& request, absl::Time, ChiefEffects*) override {
    HeartbeatResponse response;
    response.set_map_version(request.incarnation() * 2);
    return response;
  }
  AcquireWorkResponse AcquireWork(const AcquireWorkRequest& request, absl::Time, ChiefEffects*) override {
    AcquireWorkResponse response;
    response.mutable_lease()->set_lease(static_cast<int64_t>(request.sequence()));
    return response;
  }
  ReportBatchesResponse ReportBatches(const ReportBatchesRequest& request, absl::Time, ChiefEffects*) override {
    ReportBatchesResponse response;
    for (int i = 0; i < request.done_size(); ++i) response.add_verdicts(ACCEPTED);
    return response;
  }
  ReportEvaluationResponse ReportEvaluation(const ReportEvaluationRequest&, absl::Time, ChiefEffects*) override {
    ReportEvaluationResponse response;
    response.set_directive(CONTINUE);
    return response;
  }
  void Leave(const LeaveRequest& request, absl::Time, ChiefEffects*) override {
    log_->Add("leave " + request.reason());
  }
  JobStatus GetStatus(absl::Time) const override {
    JobStatus status;
    status.set_job_name("scripted");
    status.set_phase("waiting");
    status.set_message("waiting for ps: 1 of 2 registered");
    return status;
  }
  void OnPsResult(uint64_t command_id, const absl::StatusOr<PsCommandResult>& result, absl::Time,
                  ChiefEffects*) override {
    log_->Add(absl::StrCat("ps result ", command_id, " ",
                           result.ok() ? absl::StrCat("cut ", result->cut()) : result.status().ToString()));
  }
  void OnManifestWritten(uint64_t cut, const absl::Status& status, absl::Time, ChiefEffects*) override {
    log_->Add(absl::StrCat("manifest ", cut, " ", status.ToString()));
  }
  void Tick(absl::Time, ChiefEffects* effects) override {
    tick_at = absl::InfiniteFuture();
    log_->Add("tick");
  }
  absl::Time next_tick() const override { return tick_at; }
  void RequestStop(absl::Time, ChiefEffects* effects) override {
    log_->Add("stop");
    effects->actions.push_back(ExitAction{absl::OkStatus()});
  }

 private:
  CoreLog* const log_;
};

class ScriptedStore : public RecordCommitter {
 public:
  absl::Status result;
  absl::Status Commit(absl::Span<const Record> records) override { return result; }
};

// A ps that answers every command with the cut that it names.
class EchoPs : public PsControlService::Service {
 public:
  EchoPs() {
    grpc::ServerBuilder builder;
    ApplyServerArguments(&builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  std::atomic<int> commands{0};

 private:
  grpc::Status Execute(grpc::ServerContext*, const PsCommand* command, PsCommandResult* result) override {
    ++commands;
    result->set_cut(command->announce_cut().cut());
    return grpc::Status::OK;
  }
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class ChiefServiceTest : public testing::Test {
 protected:
  ChiefServiceTest() : core_(std::make_unique<ScriptedCore>(&log_)) {
    options_.listen_address = "127.0.0.1:0";
    options_.on_progress = [this](absl::string_view line) { log_.Add(absl::StrCat("progress ", line)); };
    options_.clock = &clock_;
    auto server = ChiefServer::Listen(options_);
    EXPECT_THAT(server, IsOk());
    server_ = *std::move(server);
    stub_ = ChiefService::NewStub(grpc::CreateCustomChannel(
        server_->bound_address(), grpc::InsecureChannelCredentials(), ClientChannelArguments()));
    std::string pattern = (fs::temp_directory_path() / "chief_service_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~ChiefServiceTest() override {
    server_ = nullptr;
    fs::remove_all(directory_);
  }

  void Begin() { EXPECT_THAT(server_->Begin(std::move(core_), {}, &store_), IsOk()); }

  grpc::Status Register(RegisterResponse* response) {
    RegisterRequest request;
    request.set_process_id(41);
    request.set_host("here");
    grpc::ClientContext context;
    return stub_->Register(&context, request, response);
  }

  // A manifest whose one file lies in directory_.
  CheckpointManifest Manifest() {
    std::ofstream(directory_ + "/ps-00000-of-00001.safetensors") << "123456789";
    CheckpointManifest manifest;
    manifest.set_format_version(kCheckpointFormatVersion);
    manifest.set_job_digest("1");
    manifest.set_model_digest("2");
    manifest.set_optimizer("sgd");
    manifest.mutable_ledger()->set_leases_per_epoch(1);
    manifest.mutable_ledger()->set_batch_size(1);
    manifest.mutable_ledger()->set_examples_per_lease(1);
    manifest.add_variables()->set_name("v");
    manifest.add_files()->set_name("ps-00000-of-00001.safetensors");
    manifest.mutable_files(0)->set_size_bytes(9);
    return manifest;
  }

  CoreLog log_;
  ScriptedStore store_;
  std::unique_ptr<ScriptedCore> core_;
  RealClock clock_;
  ChiefServerOptions options_;
  std::unique_ptr<ChiefServer> server_;
  std::unique_ptr<ChiefService::Stub> stub_;
  std::string directory_;
};

TEST_F(ChiefServiceTest, EveryCallReachesTheCoreAndIsAnswered) {
  Begin();
  RegisterResponse registered;
  ASSERT_TRUE(Register(&registered).ok());
  EXPECT_EQ(registered.incarnation(), 42);
  {
    grpc::ClientContext context;
    HeartbeatRequest request;
    request.set_incarnation(21);
    HeartbeatResponse response;
    ASSERT_TRUE(stub_->Heartbeat(&context, request, &response).ok());
    EXPECT_EQ(response.map_version(), 42);
  }
  {
    grpc::ClientContext context;
    AcquireWorkRequest request;
    request.set_sequence(7);
    AcquireWorkResponse response;
    ASSERT_TRUE(stub_->AcquireWork(&context, request, &response).ok());
    EXPECT_EQ(response.lease().lease(), 7);
  }
  {
    grpc::ClientContext context;
    ReportBatchesRequest request;
    request.add_done();
    request.add_done();
    ReportBatchesResponse response;
    ASSERT_TRUE(stub_->ReportBatches(&context, request, &response).ok());
    EXPECT_THAT(response.verdicts(), ElementsAre(ACCEPTED, ACCEPTED));
  }
  {
    grpc::ClientContext context;
    ReportEvaluationResponse response;
    ASSERT_TRUE(stub_->ReportEvaluation(&context, ReportEvaluationRequest(), &response).ok());
    EXPECT_EQ(response.directive(), CONTINUE);
  }
  {
    grpc::ClientContext context;
    LeaveRequest request;
    request.set_reason("done");
    LeaveResponse response;
    ASSERT_TRUE(stub_->Leave(&context, request, &response).ok());
    EXPECT_EQ(log_.WaitFor("leave"), "leave done");
  }
  grpc::ClientContext context;
  JobStatus status;
  ASSERT_TRUE(stub_->GetStatus(&context, GetStatusRequest(), &status).ok());
  EXPECT_EQ(status.job_name(), "scripted");
}

TEST_F(ChiefServiceTest, CallsBeforeBeginAreAnsweredAfterIt) {
  grpc::Status status;
  RegisterResponse response;
  std::thread caller([&] { status = Register(&response); });
  Begin();
  caller.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.incarnation(), 42);
}

TEST_F(ChiefServiceTest, NoAnswerLeavesWhenItsRecordsCannotBeCommitted) {
  core_->on_register = [](ChiefEffects* effects) { effects->records.push_back(CounterRecord{"incarnation", 42}); };
  store_.result = absl::ResourceExhaustedError("ledger.sqlite: disk full");
  Begin();
  RegisterResponse response;
  EXPECT_EQ(Register(&response).error_code(), grpc::StatusCode::UNAVAILABLE);
  const ChiefServer::Exit exit = server_->WaitForExit();
  EXPECT_THAT(exit.status, StatusIs(absl::StatusCode::kInternal, HasSubstr("ledger.sqlite: disk full")));
}

TEST_F(ChiefServiceTest, NoCommandLeavesWhenItsRecordsCannotBeCommitted) {
  EchoPs ps;
  core_->on_register = [&ps](ChiefEffects* effects) {
    effects->records.push_back(CounterRecord{"cut", 1});
    effects->ps_commands.push_back({0, ps.address(), 1, absl::Seconds(20), PsCommand()});
  };
  store_.result = absl::ResourceExhaustedError("disk full");
  Begin();
  RegisterResponse response;
  EXPECT_FALSE(Register(&response).ok());
  server_->WaitForExit();
  server_ = nullptr;
  EXPECT_EQ(ps.commands, 0);
}

TEST_F(ChiefServiceTest, BeginFailsWhenItsRecordsCannotBeCommitted) {
  ChiefEffects first;
  first.records.push_back(CounterRecord{"term", 1});
  store_.result = absl::ResourceExhaustedError("disk full");
  EXPECT_THAT(server_->Begin(std::move(core_), first, &store_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("disk full")));
}

TEST_F(ChiefServiceTest, ACallWithoutRecordsNeedsNoCommit) {
  store_.result = absl::ResourceExhaustedError("disk full");
  Begin();
  RegisterResponse response;
  EXPECT_TRUE(Register(&response).ok());
}

TEST_F(ChiefServiceTest, ACommandReachesThePsAndItsResultTheCore) {
  EchoPs ps;
  core_->on_register = [&ps](ChiefEffects* effects) {
    OutgoingPsCommand command{0, ps.address(), 77, absl::Seconds(20), PsCommand()};
    command.command.mutable_announce_cut()->set_cut(5);
    effects->ps_commands.push_back(command);
  };
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  EXPECT_EQ(log_.WaitFor("ps result"), "ps result 77 cut 5");
}

TEST_F(ChiefServiceTest, ACommandToADeadPsComesBackNamingIt) {
  std::string address;
  {
    const EchoPs ps;
    address = ps.address();
  }
  core_->on_register = [address](ChiefEffects* effects) {
    effects->ps_commands.push_back({3, address, 78, absl::Seconds(20), PsCommand()});
  };
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  EXPECT_THAT(log_.WaitFor("ps result"), HasSubstr(absl::StrCat("78 UNAVAILABLE: ps 3 at ", address)));
}

TEST_F(ChiefServiceTest, AManifestIsWrittenAndReported) {
  core_->on_register = [this, manifest = Manifest()](ChiefEffects* effects) {
    effects->actions.push_back(WriteManifestAction{9, directory_, manifest});
  };
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  EXPECT_EQ(log_.WaitFor("manifest"), "manifest 9 OK");
  EXPECT_TRUE(fs::exists(directory_ + "/manifest.json"));
}

TEST_F(ChiefServiceTest, AManifestOfAMissingFileIsReportedAndNotWritten) {
  core_->on_register = [this, manifest = Manifest()](ChiefEffects* effects) {
    effects->actions.push_back(WriteManifestAction{9, directory_, manifest});
  };
  fs::remove(directory_ + "/ps-00000-of-00001.safetensors");
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  EXPECT_THAT(log_.WaitFor("manifest"), HasSubstr("ps-00000-of-00001.safetensors"));
  EXPECT_FALSE(fs::exists(directory_ + "/manifest.json"));
}

TEST_F(ChiefServiceTest, ADeletedCheckpointIsGoneWhenTheServerIs) {
  core_->on_register = [this, manifest = Manifest()](ChiefEffects* effects) {
    effects->actions.push_back(WriteManifestAction{9, directory_, manifest});
    effects->actions.push_back(DeleteCheckpointAction{directory_});
  };
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  server_ = nullptr;
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(ChiefServiceTest, TheTimerTicksTheCore) {
  core_->tick_at = clock_.Now() + absl::Milliseconds(1);
  Begin();
  EXPECT_EQ(log_.WaitFor("tick"), "tick");
}

TEST_F(ChiefServiceTest, ProgressIsShown) {
  core_->on_register = [](ChiefEffects* effects) { effects->actions.push_back(ProgressAction{"epoch 1 of 3"}); };
  Begin();
  RegisterResponse response;
  ASSERT_TRUE(Register(&response).ok());
  EXPECT_EQ(log_.WaitFor("progress"), "progress epoch 1 of 3");
}

TEST_F(ChiefServiceTest, WhoIsMissingIsSaidWhileTheJobWaits) {
  ChiefServerOptions options = options_;
  options.waiting_line_interval = absl::Milliseconds(1);
  server_ = *ChiefServer::Listen(options);
  Begin();
  EXPECT_EQ(log_.WaitFor("progress"), "progress waiting for ps: 1 of 2 registered");
}

TEST_F(ChiefServiceTest, AStopReachesTheCoreAndItsExitEndsTheService) {
  Begin();
  server_->RequestStop();
  const ChiefServer::Exit exit = server_->WaitForExit();
  EXPECT_THAT(exit.status, IsOk());
  EXPECT_EQ(exit.job.job_name(), "scripted");
  EXPECT_EQ(log_.WaitFor("stop"), "stop");
}

TEST_F(ChiefServiceTest, TheLastAnswerStillArrivesWhenItsCallEndsTheJob) {
  core_->on_register = [](ChiefEffects* effects) { effects->actions.push_back(ExitAction{absl::AbortedError("bad")}); };
  Begin();
  RegisterResponse response;
  std::thread ender([this] {
    EXPECT_THAT(server_->WaitForExit().status, StatusIs(absl::StatusCode::kAborted, "bad"));
    server_ = nullptr;
  });
  EXPECT_TRUE(Register(&response).ok());
  EXPECT_EQ(response.incarnation(), 42);
  ender.join();
}

TEST_F(ChiefServiceTest, ASecondChiefCannotShareThePort) {
  ChiefServerOptions second = options_;
  second.listen_address = server_->bound_address();
  EXPECT_THAT(ChiefServer::Listen(second),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(server_->bound_address())));
}

TEST_F(ChiefServiceTest, AnAddressWithoutAPortIsRefused) {
  ChiefServerOptions second = options_;
  second.listen_address = "localhost";
  EXPECT_THAT(ChiefServer::Listen(second), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("localhost")));
}

}  // namespace
}  // namespace lagrange

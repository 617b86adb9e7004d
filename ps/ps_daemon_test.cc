// A whole ps daemon over real sockets on loopback, with a chief of the test's.

#include "ps/ps_daemon.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/status_matchers.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/control_plane.grpc.pb.h"
#include "ps/ps_commands_testing.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ------------------------------------------------------------------------

// Answers as a script says, and keeps what it was asked.
class FakeChief final : public ChiefService::Service {
 public:
  FakeChief() {
    directory = TestDirectory();
    EXPECT_THAT(WriteFileAtomically(JoinPath(directory, "token"), "a token"), IsOk());
    Start("127.0.0.1:0");
  }
  ~FakeChief() override { Stop(); }

  void Start(const std::string& listen) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address = absl::StrCat("127.0.0.1:", port);
  }
  void Stop() {
    if (server_ == nullptr) return;
    server_->Shutdown();
    server_->Wait();
    server_ = nullptr;
  }

  grpc::Status Register(grpc::ServerContext*, const RegisterRequest* request, RegisterResponse* response) override {
    absl::MutexLock lock(&mutex_);
    registrations_.push_back(*request);
    on_register(*request, response);
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const HeartbeatRequest* request, HeartbeatResponse* response) override {
    absl::MutexLock lock(&mutex_);
    heartbeats_.push_back(*request);
    response->set_term(term);
    response->set_directive(CONTINUE);
    on_heartbeat(*request, response);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const LeaveRequest* request, LeaveResponse*) override {
    absl::MutexLock lock(&mutex_);
    leaves_.push_back(*request);
    return grpc::Status::OK;
  }

  void AwaitHeartbeats(size_t count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return heartbeats_.size() >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  void AwaitTerm(uint64_t wanted) {
    absl::MutexLock lock(&mutex_);
    const auto named = [this, wanted]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !heartbeats_.empty() && heartbeats_.back().term() == wanted;
    };
    mutex_.Await(absl::Condition(&named));
  }
  std::vector<RegisterRequest> registrations() {
    absl::MutexLock lock(&mutex_);
    return registrations_;
  }
  std::vector<LeaveRequest> leaves() {
    absl::MutexLock lock(&mutex_);
    return leaves_;
  }
  void SetTerm(uint64_t value) {
    absl::MutexLock lock(&mutex_);
    term = value;
  }

  // As a chief does it: the job first, then the registration of whoever has read the token.
  void AnswerRegistration(const RegisterRequest& request, RegisterResponse* response) {
    response->set_directory_token_file("token");
    response->set_checkpoint_directory(directory);
    response->set_term(term);
    response->set_generation(kGeneration);
    response->mutable_heartbeat_interval()->set_nanos(10'000'000);
    if (request.directory_token() != "a token") {
      response->set_outcome(RegisterResponse::JOB);
      return;
    }
    response->set_outcome(RegisterResponse::REGISTERED);
    response->set_incarnation(kIncarnation);
    response->set_task_index(0);
  }

  std::string address;
  std::string directory;
  uint64_t term = kTerm;
  std::function<void(const RegisterRequest&, RegisterResponse*)> on_register =
      [this](const RegisterRequest& request, RegisterResponse* response) { AnswerRegistration(request, response); };
  std::function<void(const HeartbeatRequest&, HeartbeatResponse*)> on_heartbeat = [](const HeartbeatRequest&,
                                                                                     HeartbeatResponse*) {};

 private:
  std::unique_ptr<grpc::Server> server_;
  absl::Mutex mutex_;
  std::vector<RegisterRequest> registrations_;
  std::vector<HeartbeatRequest> heartbeats_;
  std::vector<LeaveRequest> leaves_;
};

// A daemon on a thread of its own.
class RunningPs {
 public:
  explicit RunningPs(PsDaemonOptions options)
      : engine_(NewThreadSafeEngine(EngineOptions())),
        daemon_(std::move(options), engine_.get(), &clock_, [this](const std::string& line) { Keep(line); }),
        thread_([this] { end_ = daemon_.Run(); }) {}
  ~RunningPs() {
    daemon_.RequestStop();
    if (thread_.joinable()) thread_.join();
  }

  ProcessEnd Join() {
    thread_.join();
    return end_;
  }
  PsDaemon& daemon() { return daemon_; }
  Engine& engine() { return *engine_; }
  std::vector<std::string> lines() {
    absl::MutexLock lock(&mutex_);
    return lines_;
  }
  void AwaitLine(const std::string& part) {
    absl::MutexLock lock(&mutex_);
    const auto said = [this, &part]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      for (const std::string& line : lines_) {
        if (line.find(part) != std::string::npos) return true;
      }
      return false;
    };
    mutex_.Await(absl::Condition(&said));
  }

 private:
  void Keep(const std::string& line) {
    absl::MutexLock lock(&mutex_);
    lines_.push_back(line);
  }

  const RealClock clock_;
  const std::unique_ptr<Engine> engine_;
  absl::Mutex mutex_;
  std::vector<std::string> lines_;
  PsDaemon daemon_;
  ProcessEnd end_;
  std::thread thread_;
};

PsDaemonOptions OptionsFor(const std::string& chief) {
  PsDaemonOptions options;
  options.link.chief = chief;
  options.link.retry_interval = absl::Milliseconds(5);
  options.listen = "127.0.0.1:0";
  return options;
}

absl::StatusOr<PsCommandResult> Send(const std::string& address, const PsCommand& command) {
  const auto stub = PsControlService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  PsCommandResult result;
  const grpc::Status status = stub->Execute(&context, command, &result);
  if (status.ok()) return result;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// A port that nobody listens on, and that nobody else is given.
class SilentPort {
 public:
  SilentPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    this->address = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~SilentPort() { close(fd_); }

  std::string address;

 private:
  const int fd_;
};

TEST(PsDaemon, RegistersWithTheTokenOfTheSharedDirectory) {
  FakeChief chief;
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  const std::vector<RegisterRequest> calls = chief.registrations();
  ASSERT_EQ(calls.size(), 2);
  EXPECT_EQ(calls[0].directory_token(), "");
  EXPECT_EQ(calls[1].directory_token(), "a token");
  EXPECT_EQ(calls[1].role(), PS);
  EXPECT_EQ(calls[1].protocol_version(), kProtocolVersion);
  EXPECT_EQ(calls[1].process_id(), calls[0].process_id());
  EXPECT_FALSE(calls[1].has_task_index());
  EXPECT_THAT(ListDirectory(chief.directory), IsOkAndHolds(ElementsAre("token")));
}

TEST(PsDaemon, ServesCommandsAtTheAddressThatItRegistered) {
  FakeChief chief;
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  const auto result = Send(chief.registrations()[1].address(), Install(5));
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->cut(), 5);
}

TEST(PsDaemon, EndsWithStatusZeroWhenTheJobIsOver) {
  FakeChief chief;
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  ASSERT_THAT(Send(chief.registrations()[1].address(), ShutDownFor("")), IsOk());
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 0) << end.reason;
}

TEST(PsDaemon, EndsWithTheReasonWhenTheJobFailed) {
  FakeChief chief;
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  ASSERT_THAT(Send(chief.registrations()[1].address(), ShutDownFor("no live workers")), IsOk());
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.reason, HasSubstr("no live workers"));
}

TEST(PsDaemon, ThePortIsFreeAfterTheEnd) {
  FakeChief chief;
  std::string address;
  {
    RunningPs ps(OptionsFor(chief.address));
    chief.AwaitHeartbeats(1);
    address = chief.registrations()[1].address();
    ps.daemon().RequestStop();
    EXPECT_EQ(ps.Join().exit_status, 0);
  }
  PsDaemonOptions again = OptionsFor(chief.address);
  again.listen = address;
  RunningPs ps(again);
  ps.AwaitLine(absl::StrCat("listening on ", address));
}

TEST(PsDaemon, ASignalEndsItAndTheChiefIsTold) {
  FakeChief chief;
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  ps.daemon().RequestStop();
  EXPECT_EQ(ps.Join().exit_status, 0);
  ASSERT_EQ(chief.leaves().size(), 1);
  EXPECT_EQ(chief.leaves()[0].incarnation(), kIncarnation);
  EXPECT_FALSE(chief.leaves()[0].failed());
}

TEST(PsDaemon, ASecondOneOnThePortIsRefusedByName) {
  FakeChief chief;
  RunningPs first(OptionsFor(chief.address));
  chief.AwaitHeartbeats(1);
  PsDaemonOptions options = OptionsFor(chief.address);
  options.listen = chief.registrations()[1].address();
  RunningPs second(options);
  const ProcessEnd end = second.Join();
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_THAT(end.reason, AllOf(HasSubstr(options.listen), HasSubstr("in use")));
  EXPECT_EQ(chief.registrations().size(), 2);
}

TEST(PsDaemon, PassesOnWhatTheChiefMustAgreeWith) {
  FakeChief chief;
  PsDaemonOptions options = OptionsFor(chief.address);
  options.task_index = 0;
  options.ps_count = 2;
  options.worker_count = 3;
  RunningPs ps(options);
  chief.AwaitHeartbeats(1);
  const RegisterRequest request = chief.registrations()[1];
  EXPECT_EQ(request.task_index(), 0);
  EXPECT_TRUE(request.has_task_index());
  EXPECT_EQ(request.expected_ps_count(), 2);
  EXPECT_EQ(request.expected_worker_count(), 3);
}

TEST(PsDaemon, AdvertisesWhatItIsTold) {
  FakeChief chief;
  PsDaemonOptions options = OptionsFor(chief.address);
  options.advertise_address = "ps-0.job:7000";
  RunningPs ps(options);
  chief.AwaitHeartbeats(1);
  EXPECT_EQ(chief.registrations()[1].address(), "ps-0.job:7000");
}

TEST(PsDaemon, OnEveryInterfaceItAdvertisesTheWayToTheChief) {
  FakeChief chief;
  PsDaemonOptions options = OptionsFor(chief.address);
  options.listen = "0.0.0.0:0";
  RunningPs ps(options);
  chief.AwaitHeartbeats(1);
  const std::string address = chief.registrations()[1].address();
  EXPECT_THAT(address, testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(Send(address, Install(5)), IsOk());
}

TEST(PsDaemon, ARefusedRegistrationEndsItWithTheChiefsWords) {
  FakeChief chief;
  chief.on_register = [](const RegisterRequest&, RegisterResponse* response) {
    response->set_outcome(RegisterResponse::REFUSED_REGISTRATION);
    response->set_message("ps_count: expected 2, got 3");
  };
  RunningPs ps(OptionsFor(chief.address));
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_THAT(end.reason, HasSubstr("expected 2, got 3"));
}

TEST(PsDaemon, ACompleteJobEndsItWithStatusZero) {
  FakeChief chief;
  chief.on_register = [](const RegisterRequest&, RegisterResponse* response) {
    response->set_outcome(RegisterResponse::JOB_IS_COMPLETE);
  };
  RunningPs ps(OptionsFor(chief.address));
  EXPECT_EQ(ps.Join().exit_status, 0);
}

TEST(PsDaemon, ADirectoryThatItDoesntShareIsNamed) {
  FakeChief chief;
  chief.directory = "/nowhere/checkpoints";
  RunningPs ps(OptionsFor(chief.address));
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 2);
  EXPECT_THAT(end.reason, HasSubstr("/nowhere/checkpoints/token"));
}

TEST(PsDaemon, WaitsForAChiefThatComesLater) {
  FakeChief chief;
  const std::string address = chief.address;
  chief.Stop();
  RunningPs ps(OptionsFor(address));
  ps.AwaitLine(absl::StrCat("waiting for the chief at ", address, ": connection refused"));
  chief.Start(address);
  chief.AwaitHeartbeats(1);
}

TEST(PsDaemon, GivesUpOnAChiefThatRefusesConnections) {
  const SilentPort nobody;
  PsDaemonOptions options = OptionsFor(nobody.address);
  options.link.startup_timeout = absl::Milliseconds(50);
  RunningPs ps(options);
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.reason, AllOf(HasSubstr(nobody.address), HasSubstr("connection refused"), HasSubstr("50ms")));
}

TEST(PsDaemon, TellsANameThatIsNotResolvedFromAConnectionRefused) {
  PsDaemonOptions options = OptionsFor("chief.nope.invalid:7000");
  options.link.startup_timeout = absl::Milliseconds(50);
  for (const char* listen : {"127.0.0.1:0", "[::]:0"}) {
    options.listen = listen;
    RunningPs ps(options);
    const ProcessEnd end = ps.Join();
    EXPECT_EQ(end.exit_status, 1);
    EXPECT_THAT(end.reason, AllOf(HasSubstr("chief.nope.invalid:7000"), HasSubstr("name not resolved")));
  }
}

TEST(PsDaemon, ASignalEndsTheWaitForAChief) {
  const SilentPort nobody;
  RunningPs ps(OptionsFor(nobody.address));
  ps.AwaitLine("waiting for the chief");
  ps.daemon().RequestStop();
  EXPECT_EQ(ps.Join().exit_status, 0);
}

TEST(PsDaemon, SaysWhomTheJobWaitsFor) {
  FakeChief chief;
  chief.on_heartbeat = [](const HeartbeatRequest&, HeartbeatResponse* response) {
    response->set_waiting_for("waiting for ps: 1 of 2 registered");
  };
  RunningPs ps(OptionsFor(chief.address));
  ps.AwaitLine("waiting for ps: 1 of 2 registered");
  chief.AwaitHeartbeats(5);
  // Not with each heartbeat: those are more often than anybody reads.
  int said = 0;
  for (const std::string& line : ps.lines()) said += line == "waiting for ps: 1 of 2 registered" ? 1 : 0;
  EXPECT_EQ(said, 1);
}

TEST(PsDaemon, KeepsItsShardsWhileTheChiefIsAwayAndTakesItsNewTerm) {
  FakeChief chief;
  const std::string address = chief.address;
  RunningPs ps(OptionsFor(address));
  chief.AwaitHeartbeats(1);
  const std::string ps_address = chief.registrations()[1].address();
  ASSERT_THAT(Send(ps_address, Install(5)), IsOk());
  chief.Stop();
  ps.AwaitLine("to come back: connection refused");
  chief.SetTerm(kTerm + 1);
  chief.Start(address);
  chief.AwaitTerm(kTerm + 1);
  EXPECT_EQ(chief.registrations().size(), 2);
  // What the chief of the earlier term still sends is refused.
  EXPECT_THAT(Send(ps_address, Announce(6)), StatusIs(absl::StatusCode::kAborted));
  PsCommand command = Announce(6);
  command.set_term(kTerm + 1);
  EXPECT_THAT(Send(ps_address, command), IsOk());
}

TEST(PsDaemon, GivesUpOnAChiefThatDoesntComeBack) {
  FakeChief chief;
  PsDaemonOptions options = OptionsFor(chief.address);
  options.link.startup_timeout = absl::Milliseconds(100);
  RunningPs ps(options);
  chief.AwaitHeartbeats(1);
  chief.Stop();
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.reason, AllOf(HasSubstr(chief.address), HasSubstr("connection refused")));
}

TEST(PsDaemon, APsThatCountsAsLostEndsWithTheReason) {
  FakeChief chief;
  chief.on_heartbeat = [](const HeartbeatRequest&, HeartbeatResponse* response) {
    response->set_directive(REGISTER_AGAIN);
    response->set_message("not heard of for 10s");
  };
  RunningPs ps(OptionsFor(chief.address));
  const ProcessEnd end = ps.Join();
  EXPECT_EQ(end.exit_status, 1);
  EXPECT_THAT(end.reason, HasSubstr("not heard of for 10s"));
}

TEST(PsDaemon, AnEarlierChiefThatIsStillAboutHasNoSay) {
  FakeChief chief;
  chief.on_heartbeat = [](const HeartbeatRequest&, HeartbeatResponse* response) {
    response->set_term(kTerm - 1);
    response->set_directive(ABORT);
  };
  RunningPs ps(OptionsFor(chief.address));
  chief.AwaitHeartbeats(3);
}

}  // namespace
}  // namespace lagrange

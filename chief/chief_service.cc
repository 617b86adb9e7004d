#include "chief/chief_service.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "chief/ps_command_sender.h"
#include "common/address.h"
#include "common/listening.h"
#include "common/serial_thread.h"
#include "common/status.h"
#include "proto/channel_arguments.h"
#include "proto/control_plane.grpc.pb.h"
#include "proto/manifest_file.h"

namespace lagrange {
namespace {

// Calls that may wait for the thread of decisions: each of 2,048 members has a few at most.
constexpr size_t kMaxWaitingEvents = 65536;
// Events in one transaction: enough to share a sync, few enough that the first is answered soon.
constexpr size_t kMaxEventsPerCommit = 256;
// How long open calls may take when the server ends.
constexpr std::chrono::seconds kShutdownGrace(2);

using CoreCall = std::function<void(ChiefCore* core, absl::Time now, ChiefEffects* effects)>;

struct Event {
  CoreCall call;
  // The call to answer once the records are durable; null for what isn't a call.
  grpc::ServerUnaryReactor* reactor = nullptr;
};

class ChiefServerImpl final : public ChiefServer, private ChiefService::CallbackService {
 public:
  explicit ChiefServerImpl(ChiefServerOptions options)
      : options_(std::move(options)),
        sender_([this](uint64_t id, absl::StatusOr<PsCommandResult> result) { OnPsResult(id, std::move(result)); }) {}
  ~ChiefServerImpl() override;

  absl::Status Bind();

  const std::string& bound_address() const override { return bound_address_; }
  absl::Status Begin(std::unique_ptr<ChiefCore> core, ChiefEffects first, RecordCommitter* store) override;
  void RequestStop() override;
  Exit WaitForExit() override;

 private:
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const RegisterRequest* request,
                                     RegisterResponse* response) override {
    return Enqueue(context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
      *response = core->Register(*request, now, effects);
    });
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const HeartbeatRequest* request,
                                      HeartbeatResponse* response) override {
    return Enqueue(context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
      *response = core->Heartbeat(*request, now, effects);
    });
  }
  grpc::ServerUnaryReactor* AcquireWork(grpc::CallbackServerContext* context, const AcquireWorkRequest* request,
                                        AcquireWorkResponse* response) override {
    return Enqueue(context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
      *response = core->AcquireWork(*request, now, effects);
    });
  }
  grpc::ServerUnaryReactor* ReportBatches(grpc::CallbackServerContext* context, const ReportBatchesRequest* request,
                                          ReportBatchesResponse* response) override {
    return Enqueue(context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
      *response = core->ReportBatches(*request, now, effects);
    });
  }
  grpc::ServerUnaryReactor* ReportEvaluation(grpc::CallbackServerContext* context,
                                             const ReportEvaluationRequest* request,
                                             ReportEvaluationResponse* response) override {
    return Enqueue(context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
      *response = core->ReportEvaluation(*request, now, effects);
    });
  }
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context, const LeaveRequest* request,
                                  LeaveResponse* response) override {
    return Enqueue(
        context, [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) { core->Leave(*request, now, effects); });
  }
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context, const GetStatusRequest* request,
                                      JobStatus* response) override {
    return Enqueue(context,
                   [=](ChiefCore* core, absl::Time now, ChiefEffects* effects) { *response = core->GetStatus(now); });
  }

  grpc::ServerUnaryReactor* Enqueue(grpc::CallbackServerContext* context, CoreCall call);
  void Post(CoreCall call);
  void OnPsResult(uint64_t command_id, absl::StatusOr<PsCommandResult> result);

  void Loop();
  // Waits until an event is there, the core's timer is due or the server ends. Empty at the timer.
  std::vector<Event> TakeEvents();
  absl::Status CarryOut(const ChiefEffects& effects, std::vector<Event>* answered);
  void Do(const ChiefAction& action);
  void SayWhoIsMissing(absl::Time now);
  void End(absl::Status status);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !events_.empty(); }
  bool HasEnded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return exit_.has_value(); }

  const ChiefServerOptions options_;
  std::string bound_address_;
  // Of the thread of decisions alone once it runs.
  std::unique_ptr<ChiefCore> core_;
  RecordCommitter* store_ = nullptr;
  std::optional<absl::Status> exit_action_;
  // Infinite once the job has begun.
  absl::Time next_waiting_line_ = absl::InfiniteFuture();

  absl::Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Exit> exit_ ABSL_GUARDED_BY(mutex_);

  PsCommandSender sender_;
  SerialThread disk_{SerialThread::AtEnd::kFinish};
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

void Refuse(std::vector<Event>* events, grpc::StatusCode code, const std::string& message) {
  for (Event& event : *events) {
    if (event.reactor != nullptr) event.reactor->Finish(grpc::Status(code, message));
  }
  events->clear();
}

ChiefServerImpl::~ChiefServerImpl() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  if (thread_.joinable()) thread_.join();
  // From here on Enqueue refuses by itself.
  std::vector<Event> rest;
  {
    absl::MutexLock lock(&mutex_);
    rest.assign(events_.begin(), events_.end());
    events_.clear();
  }
  Refuse(&rest, grpc::StatusCode::UNAVAILABLE, "the chief is ending");
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
}

absl::Status ChiefServerImpl::Bind() {
  ASSIGN_OR_RETURN(Address address, ParseAddress(options_.listen_address, PortZero::kAllowed));
  RETURN_IF_ERROR(CheckCanListen(address));
  grpc::ServerBuilder builder;
  ApplyServerArguments(&builder);
  int port = 0;
  builder.AddListeningPort(FormatAddress(address), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", FormatAddress(address), ": another process took the port just now"));
  }
  address.port = port;
  bound_address_ = FormatAddress(address);
  return absl::OkStatus();
}

absl::Status ChiefServerImpl::Begin(std::unique_ptr<ChiefCore> core, ChiefEffects first, RecordCommitter* store) {
  core_ = std::move(core);
  store_ = store;
  next_waiting_line_ = options_.clock->Now() + options_.waiting_line_interval;
  std::vector<Event> none;
  RETURN_IF_ERROR(CarryOut(first, &none));
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void ChiefServerImpl::RequestStop() {
  Post([](ChiefCore* core, absl::Time now, ChiefEffects* effects) { core->RequestStop(now, effects); });
}

ChiefServer::Exit ChiefServerImpl::WaitForExit() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &ChiefServerImpl::HasEnded));
  return *exit_;
}

grpc::ServerUnaryReactor* ChiefServerImpl::Enqueue(grpc::CallbackServerContext* context, CoreCall call) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  grpc::Status refusal;
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) {
      refusal = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the chief is ending");
    } else if (events_.size() >= kMaxWaitingEvents) {
      refusal = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             absl::StrCat("the chief has ", events_.size(), " calls waiting; call again later"));
    } else {
      events_.push_back({std::move(call), reactor});
    }
  }
  if (!refusal.ok()) reactor->Finish(refusal);
  return reactor;
}

void ChiefServerImpl::Post(CoreCall call) {
  absl::MutexLock lock(&mutex_);
  // Bounded by commands and actions under way, so it has no limit of its own: an answer must not be lost.
  if (!ending_) events_.push_back({std::move(call), nullptr});
}

void ChiefServerImpl::OnPsResult(uint64_t command_id, absl::StatusOr<PsCommandResult> result) {
  Post([command_id, result = std::move(result)](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
    core->OnPsResult(command_id, result, now, effects);
  });
}

void ChiefServerImpl::Loop() {
  std::vector<Event> events;
  absl::Status status;
  while (status.ok() && !exit_action_.has_value()) {
    events = TakeEvents();
    ChiefEffects effects;
    {
      absl::MutexLock lock(&mutex_);
      if (ending_) break;
    }
    for (const Event& event : events) event.call(core_.get(), options_.clock->Now(), &effects);
    const absl::Time now = options_.clock->Now();
    if (now >= core_->next_tick()) core_->Tick(now, &effects);
    status = CarryOut(effects, &events);
    if (now >= next_waiting_line_) SayWhoIsMissing(now);
  }
  Refuse(&events, grpc::StatusCode::UNAVAILABLE, "the chief is ending");
  if (status.ok()) status = exit_action_.value_or(absl::CancelledError("the chief was ended"));
  End(std::move(status));
}

std::vector<Event> ChiefServerImpl::TakeEvents() {
  const absl::Duration wait = std::min(core_->next_tick(), next_waiting_line_) - options_.clock->Now();
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(this, &ChiefServerImpl::HasNews), std::max(wait, absl::ZeroDuration()));
  const auto end = events_.begin() + static_cast<int64_t>(std::min(events_.size(), kMaxEventsPerCommit));
  std::vector<Event> taken(std::make_move_iterator(events_.begin()), std::make_move_iterator(end));
  events_.erase(events_.begin(), end);
  return taken;
}

absl::Status ChiefServerImpl::CarryOut(const ChiefEffects& effects, std::vector<Event>* answered) {
  if (!effects.records.empty()) {
    const absl::Status committed = store_->Commit(effects.records);
    // Internal whatever its code: no input of the job is to blame, and the exit status says so.
    if (!committed.ok()) {
      return absl::InternalError(absl::StrCat("the chief cannot record its decisions and ends: ", committed.message()));
    }
  }
  for (const OutgoingPsCommand& command : effects.ps_commands) sender_.Send(command);
  for (Event& event : *answered) {
    if (event.reactor != nullptr) event.reactor->Finish(grpc::Status::OK);
  }
  answered->clear();
  for (const ChiefAction& action : effects.actions) Do(action);
  return absl::OkStatus();
}

void ChiefServerImpl::Do(const ChiefAction& action) {
  if (const auto* write = std::get_if<WriteManifestAction>(&action)) {
    disk_.Do([this, write = *write] {
      const absl::Status status = WriteManifest(write.directory, write.manifest);
      Post([cut = write.cut, status](ChiefCore* core, absl::Time now, ChiefEffects* effects) {
        core->OnManifestWritten(cut, status, now, effects);
      });
    });
  } else if (const auto* deletion = std::get_if<DeleteCheckpointAction>(&action)) {
    disk_.Do([this, directory = deletion->directory] {
      const absl::Status status = DeleteCheckpoint(directory);
      // Nothing depends on it but room on the disk.
      if (!status.ok()) options_.on_progress(absl::StrCat("an old checkpoint stays: ", status.message()));
    });
  } else if (const auto* exit = std::get_if<ExitAction>(&action)) {
    exit_action_ = exit->status;
  } else if (const auto* progress = std::get_if<ProgressAction>(&action)) {
    options_.on_progress(progress->line);
  }
}

void ChiefServerImpl::SayWhoIsMissing(absl::Time now) {
  const JobStatus job = core_->GetStatus(now);
  const bool waiting = job.phase() == "waiting";
  next_waiting_line_ = waiting ? now + options_.waiting_line_interval : absl::InfiniteFuture();
  if (waiting && !job.message().empty()) options_.on_progress(job.message());
}

void ChiefServerImpl::End(absl::Status status) {
  Exit exit{std::move(status), core_->GetStatus(options_.clock->Now())};
  absl::MutexLock lock(&mutex_);
  ending_ = true;
  exit_ = std::move(exit);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChiefServer>> ChiefServer::Listen(const ChiefServerOptions& options) {
  auto server = std::make_unique<ChiefServerImpl>(options);
  RETURN_IF_ERROR(server->Bind());
  return server;
}

}  // namespace lagrange

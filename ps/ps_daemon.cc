#include "ps/ps_daemon.h"

#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/listening.h"
#include "common/logging.h"
#include "common/status.h"
#include "common/version.h"
#include "proto/channel_arguments.h"

namespace lagrange {
namespace {

// Of gRPC's pool for commands: the chief has one command to a ps under way, others come from stale chiefs.
constexpr int kMaxCommandThreads = 16;
constexpr size_t kMaxHostNameBytes = 255;

// Tells one start of the process from another.
uint64_t RandomProcessId() {
  std::random_device random;
  return (static_cast<uint64_t>(random()) << 32) | random();
}

DataPlaneServerOptions ReportingBadPushes(std::function<void(const RequestHeader&, const std::string&)> report) {
  DataPlaneServerOptions options;
  options.on_bad_push = std::move(report);
  return options;
}

std::string HostAndProcess() {
  char name[kMaxHostNameBytes + 1] = {};
  if (gethostname(name, kMaxHostNameBytes) != 0) name[0] = '?';
  return absl::StrCat(name, ":", getpid());
}

}  // namespace

PsDaemon::PsDaemon(PsDaemonOptions options, Engine* engine, const Clock* clock, ChiefLink::Say say)
    : options_(std::move(options)),
      engine_(engine),
      say_(say),
      link_(options_.link, clock, std::move(say)),
      data_plane_(engine, ReportingBadPushes([this](const RequestHeader& request, const std::string& message) {
                    OnBadPush(request, message);
                  })),
      service_(engine, {[this](PsEffects effects) { data_plane_.Deliver(std::move(effects)); },
                        [this](std::string reason) {
                          const int exit_status = reason.empty() ? 0 : 1;
                          link_.End({exit_status, std::move(reason)});
                        }}) {}

PsDaemon::~PsDaemon() { StopServer(); }

ProcessEnd PsDaemon::Run() {
  if (absl::Status status = StartServer(); !status.ok()) return {2, std::string(status.message())};
  say_(absl::StrCat("listening on ", FormatAddress(listening_)));
  auto registered = link_.Register(Registration(), [this] { return ReachableAddress(); });
  ProcessEnd end;
  if (const auto* registration = std::get_if<RegisterResponse>(&registered)) {
    end = Serve(*registration);
  } else {
    end = std::get<ProcessEnd>(registered);
  }
  StopServer();
  return end;
}

void PsDaemon::RequestStop() { link_.End({0, "stopped by a signal"}); }

ProcessEnd PsDaemon::Serve(const RegisterResponse& registration) {
  SetLogIdentity("ps", registration.task_index());
  say_(absl::StrCat("registered with the chief at ", options_.link.chief, " as ps ", registration.task_index(),
                    ", incarnation ", registration.incarnation()));
  engine_->SetIdentity(registration.incarnation(), registration.term(), registration.generation());
  service_.AdmitCommands();
  const ProcessEnd end = link_.BeatUntilEnd(registration, [this, &registration] { return Beat(registration); });
  link_.Leave(registration, end);
  return end;
}

absl::Status PsDaemon::StartServer() {
  ASSIGN_OR_RETURN(listening_, ParseAddress(options_.listen, PortZero::kAllowed));
  RETURN_IF_ERROR(CheckCanListen(listening_));
  grpc::ServerBuilder builder;
  ApplyServerArguments(&builder);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  builder.SetResourceQuota(grpc::ResourceQuota("ps").SetMaxThreads(kMaxCommandThreads));
  int port = 0;
  builder.AddListeningPort(FormatAddress(listening_), grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service_);
  builder.RegisterCallbackGenericService(data_plane_.service());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", options_.listen, ": another process took it"));
  }
  listening_.port = port;
  return absl::OkStatus();
}

void PsDaemon::StopServer() {
  if (server_ == nullptr) return;
  service_.Stop();
  data_plane_.CloseStreams();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kStopTimeout));
  server_->Wait();
  server_ = nullptr;
}

absl::StatusOr<std::string> PsDaemon::ReachableAddress() const {
  if (!options_.advertise_address.empty()) {
    ASSIGN_OR_RETURN(Address address, ParseAddress(options_.advertise_address, PortZero::kAllowed));
    if (address.port == 0) address.port = listening_.port;
    return FormatAddress(address);
  }
  if (!IsWildcard(listening_)) return FormatAddress(listening_);
  ASSIGN_OR_RETURN(const Address chief, ParseAddress(options_.link.chief));
  ASSIGN_OR_RETURN(std::string host, LocalHostTowards(chief));
  return FormatAddress({std::move(host), listening_.port});
}

RegisterRequest PsDaemon::Registration() const {
  RegisterRequest request;
  request.set_role(PS);
  request.set_protocol_version(kProtocolVersion);
  request.set_build_version(kBuildVersion);
  request.set_process_id(RandomProcessId());
  request.set_host(HostAndProcess());
  if (options_.task_index.has_value()) request.set_task_index(*options_.task_index);
  if (options_.ps_count.has_value()) request.set_expected_ps_count(*options_.ps_count);
  if (options_.worker_count.has_value()) request.set_expected_worker_count(*options_.worker_count);
  return request;
}

HeartbeatRequest PsDaemon::Beat(const RegisterResponse& registration) {
  // A chief that was started again has a higher term: commands of the one before are refused from now on. Its
  // generation is not taken over, for that comes with the shards of that generation.
  engine_->SetIdentity(registration.incarnation(), link_.term(), registration.generation());
  HeartbeatRequest request;
  request.set_clock(engine_->LargestClock());
  *request.mutable_staleness() = engine_->Staleness();
  absl::MutexLock lock(&mutex_);
  request.set_bad_pushes(bad_pushes_);
  request.set_bad_push_message(bad_push_message_);
  return request;
}

void PsDaemon::OnBadPush(const RequestHeader& request, const std::string& message) {
  absl::MutexLock lock(&mutex_);
  ++bad_pushes_;
  // The first is the cause, what follows may be its consequence.
  if (!bad_push_message_.empty()) return;
  bad_push_message_ = absl::StrCat(message, " (worker of incarnation ", request.incarnation(), ", step ",
                                   request.step_clock(), ", epoch ", request.key().epoch(), ", lease ",
                                   request.key().lease(), ", batch ", request.key().batch(), ")");
}

}  // namespace lagrange

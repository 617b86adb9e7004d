#include "worker/worker_main.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/logging.h"
#include "common/memory.h"
#include "common/signals.h"
#include "worker/chief_client.h"
#include "worker/ps_client.h"
#include "worker/worker.h"
#include "worker/worker_flags.h"

namespace lagrange {
namespace {

constexpr int kExitFailed = 1;

std::string DescribeProcess(const WorkerFlags& flags) {
  char host[256] = "";
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  const std::string process = absl::StrCat(host, ":", ::getpid());
  return flags.advertise_address.empty() ? process : absl::StrCat(process, " (", flags.advertise_address, ")");
}

RegisterRequest IdentityOf(const WorkerFlags& flags) {
  RegisterRequest identity;
  std::random_device random;
  identity.set_process_id((uint64_t{random()} << 32) | random());
  identity.set_host(DescribeProcess(flags));
  if (flags.task_index) identity.set_task_index(*flags.task_index);
  if (flags.expected_ps_count) identity.set_expected_ps_count(*flags.expected_ps_count);
  if (flags.expected_worker_count) identity.set_expected_worker_count(*flags.expected_worker_count);
  return identity;
}

// The first signal asks the worker to stop; a second one ends the process, whatever it does.
void OnStopSignal(Worker* worker, std::atomic<bool>* stopping, int signal_number) {
  if (stopping->exchange(true)) {
    LogError("ended by a second signal ", signal_number, "; the chief takes the lease back when it lapses");
    ::_exit(kExitFailed);
  }
  LogInfo("signal ", signal_number, ": leaving after this step; a second signal ends at once");
  worker->RequestStop();
}

int Run(const WorkerFlags& flags, const WorkerParts& parts) {
  WorkerOptions options;
  options.loop.startup_timeout = flags.startup_timeout;
  options.identity = IdentityOf(flags);
  options.compute_threads = flags.compute_threads;
  options.step_delay = flags.step_delay;
  options.parts = parts;
  const RealClock clock;
  Worker worker(options, &clock, NewChiefClient(flags.chief, options.loop.chief_timeout),
                [](PsClient::ReplyCallback on_reply, PsClient::ReconnectedCallback on_reconnected) {
                  return NewPsClient(PsClientOptions(), std::move(on_reply), std::move(on_reconnected));
                });
  std::atomic<bool> stopping{false};
  const auto signals = StopSignals::Watch([&](int signal_number) { OnStopSignal(&worker, &stopping, signal_number); });
  if (!signals.ok()) {
    LogError(signals.status().message());
    return kExitFailed;
  }
  const absl::Status status = worker.Run();
  if (status.ok()) {
    LogInfo(stopping ? "left the job" : "the job is complete");
  } else {
    LogError(status.message());
  }
  return ExitStatusFor(status);
}

}  // namespace

int WorkerMain(int argc, char** argv, const WorkerParts& parts) {
  SetMallocForLargeMessages();
  // Before any thread: they inherit it.
  BlockStopSignals();
  ::signal(SIGPIPE, SIG_IGN);
  const std::variant<WorkerFlags, int> parsed = ParseWorkerFlags(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  const WorkerFlags& flags = std::get<WorkerFlags>(parsed);
  SetLogLevel(flags.log_level);
  if (flags.task_index) {
    SetLogIdentity("worker", *flags.task_index);
  } else {
    SetLogIdentity("worker");
  }
  return Run(flags, parts);
}

}  // namespace lagrange

// The chief's daemon: flags, state, service; it ends when the job does.

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "chief/chief_flags.h"
#include "chief/chief_service.h"
#include "chief/core/chief.h"
#include "chief/job_setup.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/logging.h"
#include "common/signals.h"
#include "common/status.h"
#include "proto/report_table.h"

namespace lagrange {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitBadInput = 2;

// For people and for `lagrange local`, which shows them: whole lines at once, whoever writes them.
void PrintToStdout(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int Fail(const absl::Status& status, int exit_status) {
  LogError(status.message());
  return exit_status;
}

// The first signal asks the job to stop; a second one ends the process, whatever it does.
void OnStopSignal(ChiefServer* server, std::atomic<int>* stop_signal, int signal_number) {
  if (stop_signal->exchange(signal_number) != 0) {
    LogError("ended by a second signal ", signal_number, "; the job can go on from its state directory");
    ::_exit(kExitFailed);
  }
  LogInfo("signal ", signal_number, ": the chief stops and keeps its state; a second signal ends it at once");
  server->RequestStop();
}

absl::Status WriteReport(const std::string& path, const JobReport& report) {
  ASSIGN_OR_RETURN(const std::string json, FormatReportJson(report));
  return WriteFileAtomically(path, json);
}

// `stop_signal`: the signal that asked for a stop, 0 for none.
int Finish(const ChiefFlags& flags, const ChiefServer::Exit& exit, int stop_signal) {
  if (exit.status.ok() || !exit.job.report().epochs().empty()) PrintToStdout(FormatReportTable(exit.job.report()));
  absl::Status written;
  if (!flags.report_path.empty()) written = Annotate(WriteReport(flags.report_path, exit.job.report()), "--report");
  if (!exit.status.ok()) {
    if (!written.ok()) LogError(written.message());
    // As a shell reports a process that the signal ended: not done, so that whoever supervises it starts it again.
    if (stop_signal != 0 && absl::IsCancelled(exit.status)) return Fail(exit.status, 128 + stop_signal);
    // What a worker found wrong with the job's input.
    return Fail(exit.status, absl::IsInvalidArgument(exit.status) ? kExitBadInput : kExitFailed);
  }
  return written.ok() ? 0 : Fail(written, kExitFailed);
}

int Run(const ChiefFlags& flags) {
  const absl::StatusOr<JobSpec> job = LoadJob(flags);
  if (!job.ok()) return Fail(job.status(), kExitBadInput);
  const RealClock clock;
  const auto on_progress = [](absl::string_view line) { PrintToStdout(absl::StrCat(line, "\n")); };
  // Everything that can be wrong is found before the first record: port, state, checkpoint, and their fit to the job.
  absl::StatusOr<std::unique_ptr<ChiefServer>> listening = ChiefServer::Listen({flags.listen, on_progress, &clock});
  if (!listening.ok()) return Fail(listening.status(), kExitBadInput);
  absl::StatusOr<JobSetup> setup = SetUpJob(flags, *job);
  if (!setup.ok()) return Fail(setup.status(), kExitBadInput);
  // Destroyed before the store that it commits to.
  const std::unique_ptr<ChiefServer> server = *std::move(listening);
  ChiefEffects first;
  absl::StatusOr<std::unique_ptr<ChiefCore>> core = NewChiefCore(setup->options, setup->durable, clock.Now(), &first);
  if (!core.ok()) return Fail(core.status(), kExitBadInput);
  if (setup->store->is_new() && setup->options.restore.has_value()) {
    const absl::Status saved = setup->store->SaveRestore(*setup->options.restore);
    if (!saved.ok()) return Fail(saved, kExitFailed);
  }
  if (const absl::Status saved = setup->store->SaveJob(*job); !saved.ok()) return Fail(saved, kExitFailed);
  std::atomic<int> stop_signal{0};
  const absl::Status begun = server->Begin(*std::move(core), std::move(first), setup->store.get());
  if (!begun.ok()) return Fail(begun, kExitFailed);
  const auto signals =
      StopSignals::Watch([&](int signal_number) { OnStopSignal(server.get(), &stop_signal, signal_number); });
  if (!signals.ok()) return Fail(signals.status(), kExitFailed);
  const std::string address = flags.advertise_address.empty() ? server->bound_address() : flags.advertise_address;
  if (!flags.address_file.empty()) {
    const absl::Status written = Annotate(WriteFileAtomically(flags.address_file, address + "\n"), "--address_file");
    if (!written.ok()) return Fail(written, kExitBadInput);
  }
  LogInfo("job ", job->name(), ": listening on ", server->bound_address(), "; members start with --chief=", address);
  const ChiefServer::Exit exit = server->WaitForExit();
  const int exit_status = Finish(flags, exit, stop_signal);
  // Gone already, or of a directory that is gone: no matter.
  RemoveFile(TokenPath(setup->options)).IgnoreError();
  return exit_status;
}

int Main(int argc, char** argv) {
  // First of all: threads inherit it.
  BlockStopSignals();
  ::signal(SIGPIPE, SIG_IGN);
  const std::variant<ChiefFlags, int> parsed = ParseChiefFlags(argc, argv);
  if (const int* exit_status = std::get_if<int>(&parsed)) return *exit_status;
  const ChiefFlags& flags = std::get<ChiefFlags>(parsed);
  SetLogLevel(flags.log_level);
  SetLogIdentity("chief");
  return Run(flags);
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) { return lagrange::Main(argc, argv); }

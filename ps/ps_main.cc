// lagrange-ps: holds shards of the variables, applies pushes, answers pulls.
//
// Exit status: 0 when the job is complete, or after SIGTERM or SIGINT (a checkpoint's file that is being written is
// finished first); 1 when the job or this process failed, or the chief stayed away; 2 when it was started with wrong
// flags, on a port in use, or was refused by the chief.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/address.h"
#include "common/clock.h"
#include "common/logging.h"
#include "common/memory.h"
#include "common/partition.h"
#include "common/signals.h"
#include "common/status.h"
#include "common/version.h"
#include "ps/core/engine.h"
#include "ps/ps_daemon.h"

namespace lagrange {
namespace {

constexpr int kUsageStatus = 2;
// Processes of one role, as ClusterSpec bounds them.
constexpr int kMaxWorkerCount = 1024;

// Of a flag's text, for CLI11: an empty string, or what is wrong.
std::string CheckAddress(const std::string& text, PortZero port_zero) {
  return std::string(ParseAddress(text, port_zero).status().message());
}

std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration()) return "";
  return absl::StrCat("\"", text, "\": expected a duration above 0 such as 30s or 5m");
}

// The flags, as far as they are text.
struct Flags {
  PsDaemonOptions options;
  std::string startup_timeout = "5m";
  std::string log_level = "info";
  int32_t task_index = 0;
  int32_t ps_count = 0;
  int32_t worker_count = 0;
};

void AddFlags(CLI::App* app, Flags* flags) {
  const auto listening = [](const std::string& text) { return CheckAddress(text, PortZero::kAllowed); };
  app->set_version_flag("--version", absl::StrCat("lagrange-ps ", kBuildVersion, " (protocol ", kProtocolVersion, ")"));
  app->add_option("--chief", flags->options.link.chief, "Address of the chief, HOST:PORT")
      ->required()
      ->check(
          CLI::Validator([](const std::string& text) { return CheckAddress(text, PortZero::kRefused); }, "ADDRESS"));
  app->add_option("--listen", flags->options.listen,
                  "Address to listen on, HOST:PORT; port 0 is the kernel's choice, [::] every interface")
      ->capture_default_str()
      ->check(CLI::Validator(listening, "ADDRESS"));
  app->add_option("--advertise_address", flags->options.advertise_address,
                  "Address that others are told, when it isn't the one listened on")
      ->check(CLI::Validator(listening, "ADDRESS"));
  app->add_option("--task_index", flags->task_index, "Number of this ps, from 0; by default the chief gives it")
      ->check(CLI::Range(0, kMaxPsCount - 1));
  app->add_option("--ps_count", flags->ps_count, "ps that the job must have; refused by the chief if it has not")
      ->check(CLI::Range(1, kMaxPsCount));
  app->add_option("--worker_count", flags->worker_count, "Workers that the job must have")
      ->check(CLI::Range(1, kMaxWorkerCount));
  app->add_option("--startup_timeout", flags->startup_timeout,
                  "How long to wait for a chief that isn't there, at the start and later")
      ->capture_default_str()
      ->check(CLI::Validator([](const std::string& text) { return CheckDuration(text); }, "DURATION"));
  app->add_option("--log_level", flags->log_level, "debug, info, warning or error")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& text) { return std::string(ParseLogLevel(text).status().message()); }, "LEVEL"));
}

// What CLI11 has checked, as the daemon takes it.
absl::Status Apply(const CLI::App& app, Flags* flags) {
  ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(flags->log_level));
  SetLogLevel(level);
  if (!absl::ParseDuration(flags->startup_timeout, &flags->options.link.startup_timeout)) {
    return absl::InvalidArgumentError(CheckDuration(flags->startup_timeout));
  }
  SetLogIdentity("ps");
  if (app.count("--task_index") > 0) {
    flags->options.task_index = flags->task_index;
    SetLogIdentity("ps", flags->task_index);
  }
  if (app.count("--ps_count") > 0) flags->options.ps_count = flags->ps_count;
  if (app.count("--worker_count") > 0) flags->options.worker_count = flags->worker_count;
  return absl::OkStatus();
}

int RunDaemon(const PsDaemonOptions& options) {
  const RealClock clock;
  const std::unique_ptr<Engine> engine = NewThreadSafeEngine(EngineOptions());
  PsDaemon daemon(options, engine.get(), &clock, [](const std::string& line) { LogInfo(line); });
  const auto signals = StopSignals::Watch([&daemon](int) { daemon.RequestStop(); });
  if (!signals.ok()) {
    LogError("signals can't be watched: ", signals.status().message());
    return 1;
  }
  const ProcessEnd end = daemon.Run();
  if (end.exit_status != 0) {
    LogError(end.reason);
  } else if (!end.reason.empty()) {
    LogInfo(end.reason);
  }
  return end.exit_status;
}

int Main(int argc, char** argv) {
  SetMallocForLargeMessages();
  BlockStopSignals();
  CLI::App app("A parameter server of a Lagrange job: holds shards of the variables.", "lagrange-ps");
  Flags flags;
  AddFlags(&app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version come here too, with status 0.
    return app.exit(error) == 0 ? 0 : kUsageStatus;
  }
  if (absl::Status status = Apply(app, &flags); !status.ok()) {
    std::cerr << "lagrange-ps: " << status.message() << "\n";
    return kUsageStatus;
  }
  return RunDaemon(flags.options);
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) { return lagrange::Main(argc, argv); }

#include "worker/worker_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/address.h"
#include "common/version.h"

namespace lagrange {
namespace {

constexpr int kMaxTasks = 1024;
constexpr int kMaxComputeThreads = 1024;

// CLI11 checks: the text of an error, or "" when the value will do.
std::string CheckListenAddress(const std::string& text) {
  return std::string(ParseAddress(text, PortZero::kAllowed).status().message());
}
std::string CheckAddress(const std::string& text) { return std::string(ParseAddress(text).status().message()); }
std::string CheckLogLevel(const std::string& text) { return std::string(ParseLogLevel(text).status().message()); }
std::string CheckTimeout(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration()) return "";
  return absl::StrCat("expected a duration above 0 such as 90s or 5m, got \"", text, "\"");
}
std::string CheckDelay(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration >= absl::ZeroDuration()) return "";
  return absl::StrCat("expected a duration such as 50ms, got \"", text, "\"");
}

void AddJobFlags(CLI::App* app, WorkerFlags* flags) {
  app->add_option("--chief", flags->chief, "the chief's address; everything else is learnt from it")
      ->required()
      ->check(CLI::Validator(CheckAddress, "HOST:PORT"));
  app->add_option("--task_index", flags->task_index, "number among the workers, from 0 [the chief chooses]")
      ->check(CLI::Range(0, kMaxTasks - 1));
  app->add_option("--ps_count", flags->expected_ps_count, "refuse a job of another number of ps")
      ->check(CLI::Range(1, kMaxTasks));
  app->add_option("--worker_count", flags->expected_worker_count, "refuse a job of another number of workers")
      ->check(CLI::Range(1, kMaxTasks));
  app->add_option("--compute_threads", flags->compute_threads, "threads of one matrix product")
      ->check(CLI::Range(1, kMaxComputeThreads))
      ->capture_default_str();
}

struct FlagTexts {
  std::string startup_timeout = "5m";
  std::string step_delay = "0s";
  std::string log_level = "info";
};

void AddProcessFlags(CLI::App* app, WorkerFlags* flags, FlagTexts* texts) {
  app->add_option("--listen", flags->listen, "taken as by the other daemons; a worker listens on nothing")
      ->check(CLI::Validator(CheckListenAddress, "HOST:PORT"));
  app->add_option("--advertise_address", flags->advertise_address, "shown in `lagrange status` beside the host's name")
      ->check(CLI::Validator(CheckAddress, "HOST:PORT"));
  app->add_option("--startup_timeout", texts->startup_timeout, "give up when the chief has not registered it by then")
      ->check(CLI::Validator(CheckTimeout, "DURATION"))
      ->capture_default_str();
  app->add_option("--step_delay", texts->step_delay, "pause after each computation: a debugging aid, to make it slow")
      ->check(CLI::Validator(CheckDelay, "DURATION"))
      ->capture_default_str();
  app->add_option("--log_level", texts->log_level, "debug, info, warning or error")
      ->check(CLI::Validator(CheckLogLevel, "LEVEL"))
      ->capture_default_str();
}

}  // namespace

std::variant<WorkerFlags, int> ParseWorkerFlags(int argc, char** argv) {
  CLI::App app("A worker of a Lagrange job: pulls parameters, computes gradients, pushes them.", "lagrange-worker");
  app.set_version_flag("--version",
                       absl::StrCat("lagrange-worker ", kBuildVersion, " (protocol ", kProtocolVersion, ")"));
  app.footer(
      "Exit status: 0 the job is done or the worker was asked to stop (SIGTERM), 1 it failed, 2 bad flags, model or "
      "data.");
  WorkerFlags flags;
  FlagTexts texts;
  AddJobFlags(&app, &flags);
  AddProcessFlags(&app, &flags, &texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  absl::ParseDuration(texts.startup_timeout, &flags.startup_timeout);
  absl::ParseDuration(texts.step_delay, &flags.step_delay);
  flags.log_level = *ParseLogLevel(texts.log_level);
  return flags;
}

}  // namespace lagrange

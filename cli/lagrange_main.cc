// The `lagrange` command: see docs/command_line.md.

#include <cstdio>
#include <iostream>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands.h"
#include "common/version.h"

namespace lagrange {
namespace {

void AddJobFlags(CLI::App* command, std::string* job_path, JobOverrides* overrides) {
  command->add_option("--job", *job_path, "job file, protobuf text format (proto/job.proto)")->required();
  command->add_option("--ps", overrides->ps_count, "number of ps, in place of the job's")->check(CLI::Range(1, 1024));
  command->add_option("--workers", overrides->worker_count, "number of workers, in place of the job's")
      ->check(CLI::Range(1, 1024));
  command->add_option("--epochs", overrides->epochs, "epochs, in place of the job's")->check(CLI::Range(1, 2147483647));
  command->add_option("--consistency", overrides->consistency,
                      "asp, bsp, ssp (the job's staleness, else 3) or ssp:N, in place of the job's");
}

// "30s", "5m", "1h30m".
std::string CheckDuration(const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration()) return "";
  return absl::StrCat("expected a duration such as 30s or 5m, got ", text);
}

int Main(int argc, char** argv) {
  CLI::App app("Lagrange: training with a parameter server", "lagrange");
  app.set_version_flag("--version", absl::StrCat("lagrange ", kBuildVersion, " (protocol ", kProtocolVersion, ")"));
  app.require_subcommand(1);

  LocalOptions local;
  CLI::App* run_local = app.add_subcommand("local", "run a job on this machine: a chief, ps and workers as processes");
  AddJobFlags(run_local, &local.job_path, &local.overrides);
  run_local->add_option("--state_dir", local.state_directory,
                        "where ledger, report and checkpoints go; must be new or empty (default: a new one below "
                        "./lagrange-runs)");
  run_local->add_option("--restore", local.restore, "start from this checkpoint's directory");
  run_local->add_option("--report", local.report_path, "write the result as JSON to this file");
  run_local->add_option("--program_dir", local.program_directory, "where lagrange-chief, -ps and -worker are");
  run_local->add_option("--log_level", local.log_level, "of the daemons")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  run_local->add_option("--compute_threads", local.compute_threads, "of each worker (default: 1)")
      ->check(CLI::Range(1, 1024));

  std::string validate_job;
  JobOverrides validate_overrides;
  CLI::App* validate = app.add_subcommand("validate", "check a job file and its data without starting anything");
  AddJobFlags(validate, &validate_job, &validate_overrides);

  std::string chief;
  std::string timeout_text = "5s";
  CLI::App* status = app.add_subcommand("status", "show a running job: phase, epoch, members, examples/s, staleness");
  status->add_option("--chief", chief, "the chief's address, host:port")->required();
  status->add_option("--timeout", timeout_text, "how long to wait for its answer")->check(CheckDuration);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // --help and --version end here too, with status 0.
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (run_local->parsed()) return RunLocal(local);
  if (validate->parsed()) return RunValidate(validate_job, validate_overrides);
  absl::Duration timeout;
  absl::ParseDuration(timeout_text, &timeout);
  return RunStatus(chief, timeout);
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) { return lagrange::Main(argc, argv); }

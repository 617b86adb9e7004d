#include "chief/chief_flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/address.h"
#include "common/file_system.h"
#include "common/job_config.h"
#include "common/status.h"
#include "common/version.h"

namespace lagrange {
namespace {

// A job of 10,000 layers has a tenth of that.
constexpr int64_t kMaxJobFileBytes = int64_t{16} << 20;

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

void AddJobFlags(CLI::App* app, ChiefFlags* flags) {
  app->add_option("--job", flags->job_path, "job file (protobuf text format, JobSpec); required");
  app->add_option("--consistency", flags->consistency, "asp, bsp, ssp or ssp:N, in place of the job's");
  app->add_option("--ps", flags->ps_count, "ps processes, in place of the job's")->check(CLI::Range(1, 1024));
  app->add_option("--workers", flags->worker_count, "worker processes, in place of the job's")
      ->check(CLI::Range(1, 1024));
  app->add_option("--epochs", flags->epochs, "epochs, in place of the job's")->check(CLI::Range(1, 2147483647));
  app->add_option("--restore", flags->restore_directory, "directory of the checkpoint to begin from");
}

void AddProcessFlags(CLI::App* app, ChiefFlags* flags, std::string* startup_timeout, std::string* log_level) {
  app->add_option("--listen", flags->listen, "address to listen on, HOST:PORT; port 0 lets the kernel choose")
      ->check(CLI::Validator(CheckListenAddress, "HOST:PORT"))
      ->capture_default_str();
  app->add_option("--advertise_address", flags->advertise_address, "address for others, when it isn't the one above")
      ->check(CLI::Validator(CheckAddress, "HOST:PORT"));
  app->add_option("--state_dir", flags->state_directory,
                  "where the job's ledger is kept; a chief started on it again goes on with the job "
                  "[./lagrange-state/<job name>]");
  app->add_option("--report", flags->report_path, "write the job's report there as JSON");
  app->add_option("--address_file", flags->address_file, "write the address for others there, once calls are answered");
  app->add_option("--startup_timeout", *startup_timeout, "give up when ps and workers have not registered by then")
      ->check(CLI::Validator(CheckTimeout, "DURATION"))
      ->capture_default_str();
  app->add_option("--log_level", *log_level, "debug, info, warning or error")
      ->check(CLI::Validator(CheckLogLevel, "LEVEL"))
      ->capture_default_str();
}

}  // namespace

std::variant<ChiefFlags, int> ParseChiefFlags(int argc, char** argv) {
  CLI::App app("The chief of a Lagrange job: membership, data leases, epochs, checkpoints.", "lagrange-chief");
  app.set_version_flag("--version",
                       absl::StrCat("lagrange-chief ", kBuildVersion, " (protocol ", kProtocolVersion, ")"));
  app.footer("Exit status: 0 the job is done, 1 it failed, 2 bad input, flags or address.");
  ChiefFlags flags;
  std::string startup_timeout = "5m";
  std::string log_level = "info";
  AddJobFlags(&app, &flags);
  AddProcessFlags(&app, &flags, &startup_timeout, &log_level);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream out;
    std::ostringstream err;
    const int exit_status = app.exit(error, out, err) == 0 ? 0 : 2;
    std::fputs(out.str().c_str(), stdout);
    std::fputs(err.str().c_str(), stderr);
    return exit_status;
  }
  // Not CLI11's own check, which comes before the one for misspelt flags and hides it.
  if (flags.job_path.empty()) {
    std::fputs("--job=FILE is required; --help lists the flags\n", stderr);
    return 2;
  }
  absl::ParseDuration(startup_timeout, &flags.startup_timeout);
  flags.log_level = *ParseLogLevel(log_level);
  return flags;
}

absl::StatusOr<JobSpec> LoadJob(const ChiefFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.job_path, kMaxJobFileBytes));
  ASSIGN_OR_RETURN(const ParsedJob parsed, ParseJob(flags.job_path, text));
  JobSpec job = parsed.spec;
  if (flags.ps_count > 0) job.mutable_cluster()->set_ps_count(flags.ps_count);
  if (flags.worker_count > 0) job.mutable_cluster()->set_worker_count(flags.worker_count);
  if (flags.epochs > 0) job.set_epochs(flags.epochs);
  if (!flags.consistency.empty()) {
    absl::StatusOr<ConsistencySpec> consistency = ParseConsistency(flags.consistency, job.consistency());
    RETURN_IF_ERROR(Annotate(consistency.status(), "--consistency"));
    *job.mutable_consistency() = *std::move(consistency);
  }
  RETURN_IF_ERROR(ValidateJob(job));
  return job;
}

}  // namespace lagrange

#include <unistd.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/commands.h"
#include "cli/local_run.h"
#include "common/file_system.h"
#include "common/status.h"
#include "google/protobuf/text_format.h"

namespace lagrange {
namespace {

// Absolute, so that the daemons' messages name a place that can be pasted.
absl::StatusOr<std::string> MakeStateDirectory(const std::string& given, const std::string& job_name) {
  std::string path = given;
  if (path.empty()) {
    const std::string time = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone());
    path = absl::StrCat("lagrange-runs/", job_name, "-", time, "-", ::getpid());
  }
  if (path[0] != '/') {
    char buffer[4096];
    if (::getcwd(buffer, sizeof(buffer)) == nullptr) return absl::InternalError("the working directory has no path");
    path = absl::StrCat(buffer, "/", path);
  }
  RETURN_IF_ERROR(MakeDirectories(path));
  // The parameters of a run live in its ps, and those are gone with it: only a checkpoint of it can be gone on with.
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path));
  if (!names.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state directory ", path, " is not empty (", names.front(),
                     "): give a new one, and --restore=CHECKPOINT to go on from an earlier run's checkpoint"));
  }
  return path;
}

absl::StatusOr<std::string> WriteJob(const std::string& state_directory, const JobSpec& job) {
  std::string text;
  if (!google::protobuf::TextFormat::PrintToString(job, &text)) return absl::InternalError("the job has no text form");
  const std::string path = absl::StrCat(state_directory, "/job.textproto");
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  return path;
}

int Fail(const absl::Status& status, int exit_status) {
  std::cerr << "lagrange local: " << status.message() << "\n";
  return exit_status;
}

}  // namespace

int RunLocal(const LocalOptions& given) {
  LocalOptions options = given;
  const absl::StatusOr<CheckedJob> job = CheckJob(options.job_path, options.overrides);
  if (!job.ok()) return Fail(job.status(), 2);
  absl::StatusOr<DaemonPrograms> programs = FindDaemonPrograms(options.program_directory);
  if (!programs.ok()) return Fail(programs.status(), 2);
  absl::StatusOr<std::string> state_directory = MakeStateDirectory(options.state_directory, job->spec.name());
  if (!state_directory.ok()) return Fail(state_directory.status(), 2);
  options.state_directory = *state_directory;
  if (options.report_path.empty()) options.report_path = absl::StrCat(*state_directory, "/report.json");
  const absl::StatusOr<std::string> job_path = WriteJob(*state_directory, job->spec);
  if (!job_path.ok()) return Fail(job_path.status(), 2);
  return LocalRun(options, job->spec, *std::move(programs), *job_path).Run();
}

}  // namespace lagrange

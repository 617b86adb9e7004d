#include "chief/job_setup.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/file_system.h"
#include "common/prng.h"
#include "common/status.h"
#include "proto/manifest_file.h"

namespace lagrange {
namespace {

// A member must be able to miss several heartbeats before its lease lapses.
constexpr int kHeartbeatsPerLease = 5;

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": cannot make the path absolute: ", error.message()));
  std::string normal = absolute.lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

// The checkpoint that the job begins, or once began, from. Saved only when the core has accepted it (chief_main.cc).
absl::StatusOr<std::optional<RestoreSource>> FindRestore(const ChiefFlags& flags, Store* store) {
  ASSIGN_OR_RETURN(const std::optional<RestoreSource> began_from, store->LoadRestore());
  if (flags.restore_directory.empty()) return began_from;
  if (store->is_new()) return ReadRestoreSource(flags.restore_directory);
  ASSIGN_OR_RETURN(const std::string wanted, AbsolutePath(flags.restore_directory));
  if (began_from.has_value() && began_from->directory() == wanted) return began_from;
  return absl::FailedPreconditionError(absl::StrCat(
      "--restore=", flags.restore_directory, ": the job of this state directory has already begun, from ",
      began_from.has_value() ? began_from->directory() : "initial values",
      "; leave --restore out to go on with it, or choose another --state_dir to begin from the checkpoint"));
}

uint64_t RandomNumber() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string RandomHex() {
  std::random_device device;
  std::string text;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&text, absl::Hex(device(), absl::kZeroPad8));
  return text;
}

absl::Status PrepareCheckpointDirectory(const std::string& state_directory, ChiefOptions* options) {
  const std::string& given = options->job.checkpoint().directory();
  ASSIGN_OR_RETURN(options->checkpoint_directory,
                   AbsolutePath(given.empty() ? JoinPath(state_directory, "checkpoints") : given));
  RETURN_IF_ERROR(Annotate(MakeDirectories(options->checkpoint_directory), "checkpoint.directory"));
  // Jobs may share the directory, so each state directory has a token file of its own.
  options->directory_token_file =
      absl::StrCat(".lagrange-token-", absl::Hex(KeyOfName(state_directory), absl::kZeroPad16));
  options->directory_token = RandomHex();
  return WriteFileAtomically(TokenPath(*options), options->directory_token);
}

}  // namespace

absl::StatusOr<JobSetup> SetUpJob(const ChiefFlags& flags, const JobSpec& job) {
  JobSetup setup;
  ASSIGN_OR_RETURN(const std::string state_directory,
                   AbsolutePath(flags.state_directory.empty() ? absl::StrCat("lagrange-state/", job.name())
                                                              : flags.state_directory));
  ASSIGN_OR_RETURN(setup.store, Store::Open(state_directory, job));
  ASSIGN_OR_RETURN(setup.durable, setup.store->Load());
  setup.options.job = job;
  setup.options.run_id = RandomNumber();
  ASSIGN_OR_RETURN(setup.options.restore, FindRestore(flags, setup.store.get()));
  RETURN_IF_ERROR(PrepareCheckpointDirectory(state_directory, &setup.options));
  setup.options.startup_timeout = flags.startup_timeout;
  const absl::Duration shortest_lease =
      std::min(ToDuration(job.cluster().worker_lease()), ToDuration(job.cluster().ps_lease()));
  setup.options.heartbeat_interval = std::min(setup.options.heartbeat_interval, shortest_lease / kHeartbeatsPerLease);
  return setup;
}

absl::StatusOr<RestoreSource> ReadRestoreSource(const std::string& directory) {
  RestoreSource restore;
  ASSIGN_OR_RETURN(*restore.mutable_directory(), AbsolutePath(directory));
  ASSIGN_OR_RETURN(*restore.mutable_manifest(), ReadManifest(restore.directory()));
  RETURN_IF_ERROR(VerifyCheckpointFiles(restore.directory(), restore.manifest(), FileCheck::kSizesAndChecksums));
  return restore;
}

std::string TokenPath(const ChiefOptions& options) {
  return JoinPath(options.checkpoint_directory, options.directory_token_file);
}

}  // namespace lagrange

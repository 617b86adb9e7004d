// What a chief needs on disk before its core can start: state, checkpoint directory, the checkpoint to begin from.
//
// For chief_main.cc. Caller synchronizes. Errors name the file or flag, what was expected and what was found; all of
// them are found before anything is committed.

#ifndef CHIEF_JOB_SETUP_H_
#define CHIEF_JOB_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "chief/chief_flags.h"
#include "chief/core/chief.h"
#include "chief/store.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

struct JobSetup {
  std::unique_ptr<Store> store;
  Durable durable;
  ChiefOptions options;
};

// Opens the state, verifies the checkpoint (sizes, crc32c, format), makes the checkpoint directory and writes its
// token.
absl::StatusOr<JobSetup> SetUpJob(const ChiefFlags& flags, const JobSpec& job);

// A checkpoint's directory (made absolute) and manifest, its files verified byte by byte.
absl::StatusOr<RestoreSource> ReadRestoreSource(const std::string& directory);

// The token file's path.
std::string TokenPath(const ChiefOptions& options);

}  // namespace lagrange

#endif  // CHIEF_JOB_SETUP_H_

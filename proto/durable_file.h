// Files that a crash leaves either old or new, never half: temporary name, sync, rename, sync of the directory.
//
// For the shells and the command line. Thread-safe as long as no two calls write one path. Errors name the path and the
// system's reason: NotFound when a file isn't there, ResourceExhausted when it is larger than the caller's limit,
// Internal for the rest.

#ifndef PROTO_DURABLE_FILE_H_
#define PROTO_DURABLE_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lagrange {

// On failure the temporary file is removed and an older file at `path` stays as it was.
absl::Status WriteFileDurably(const std::string& path, absl::string_view contents);

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// Makes renames and removals in a directory survive a loss of power.
absl::Status SyncDirectory(const std::string& directory);

// Creates the directory and its parents where missing.
absl::Status MakeDirectories(const std::string& directory);

// Lexically: no symbolic link is followed, the file need not exist.
absl::StatusOr<std::string> AbsolutePath(const std::string& path);

}  // namespace lagrange

#endif  // PROTO_DURABLE_FILE_H_

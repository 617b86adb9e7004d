// manifest.json of a checkpoint's directory: read, check, write, delete. A checkpoint exists when its manifest does.
//
// For the chief, the ps and the command line. Thread-safe as long as no two calls write or delete one directory. Files
// are read in blocks, never whole. Errors name the file and the field, what was expected and what was found:
// NotFound (no manifest, a file missing), InvalidArgument (not JSON, a field out of range), FailedPrecondition (a
// format version that this build doesn't know), DataLoss (a file of another size or crc32c).

#ifndef PROTO_MANIFEST_FILE_H_
#define PROTO_MANIFEST_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace lagrange {

inline constexpr char kManifestName[] = "manifest.json";
// A manifest of 1,000 ps, 100,000 variables and 1,000 epochs has about 20 MB; the bound keeps a wrong file from filling
// the memory.
inline constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

// Parsed and validated; the files that it names are not looked at.
absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory);

// Everything that holds of a manifest by itself. `where` (a path) begins the message.
absl::Status ValidateManifest(const std::string& where, const CheckpointManifest& manifest);

enum class FileCheck { kSizes, kSizesAndChecksums };

// Whether the files are there as the manifest says.
absl::Status VerifyCheckpointFiles(const std::string& directory, const CheckpointManifest& manifest, FileCheck check);

// Validates, checks that the files are there with their sizes, then writes durably: on failure nothing is listed.
absl::Status WriteManifest(const std::string& directory, const CheckpointManifest& manifest);

// The manifest first, so that a crash in between leaves nothing listed; then the checkpoint's files and the directory,
// which stays if anything else lies in it. A checkpoint that is gone already is no error.
absl::Status DeleteCheckpoint(const std::string& directory);

// CRC-32C (Castagnoli) of a whole file.
absl::StatusOr<uint32_t> Crc32cOfFile(const std::string& path);

}  // namespace lagrange

#endif  // PROTO_MANIFEST_FILE_H_

#include "proto/manifest_file.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "common/version.h"
#include "proto/durable_file.h"

namespace lagrange {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kCheckpointFileSuffix = ".safetensors";

std::string ManifestPath(const std::string& directory) { return (fs::path(directory) / kManifestName).string(); }

absl::Status FieldError(const std::string& where, absl::string_view field, absl::string_view expected,
                        absl::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", field, ": expected ", expected, ", got ", got));
}

// A name from a manifest is joined to a path and may be deleted: it must not lead out of its directory.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name[0] != '.' && !absl::StrContains(name, '/') &&
         name.find('\0') == std::string::npos && name != kManifestName;
}

absl::Status ValidateFiles(const std::string& where, const CheckpointManifest& manifest) {
  if (manifest.files().empty()) return FieldError(where, "files", "at least one file", "none");
  std::set<std::string> names;
  for (int i = 0; i < manifest.files_size(); ++i) {
    const CheckpointFile& file = manifest.files(i);
    const std::string field = absl::StrCat("files[", i, "]");
    if (!IsPlainFileName(file.name())) {
      return FieldError(where, field + ".name", "a file name without a path", absl::StrCat("\"", file.name(), "\""));
    }
    if (!names.insert(file.name()).second) {
      return FieldError(where, field + ".name", "names that differ", absl::StrCat("\"", file.name(), "\" twice"));
    }
    if (file.size_bytes() < 1) {
      return FieldError(where, field + ".size_bytes", "at least 1", absl::StrCat(file.size_bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateVariables(const std::string& where, const CheckpointManifest& manifest) {
  if (manifest.variables().empty()) return FieldError(where, "variables", "at least one variable", "none");
  std::set<std::string> names;
  for (int i = 0; i < manifest.variables_size(); ++i) {
    const VariableEntry& variable = manifest.variables(i);
    const std::string field = absl::StrCat("variables[", i, "]");
    if (variable.name().empty() || !names.insert(variable.name()).second) {
      return FieldError(where, field + ".name", "names that differ", absl::StrCat("\"", variable.name(), "\" again"));
    }
    for (const int64_t dimension : variable.shape()) {
      if (dimension < 1) {
        return FieldError(where, absl::StrCat(field, ".shape (", variable.name(), ")"), "dimensions of at least 1",
                          absl::StrCat(dimension));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateLedger(const std::string& where, const CutLedger& ledger) {
  if (ledger.epochs_complete() < 0) {
    return FieldError(where, "ledger.epochs_complete", "at least 0", absl::StrCat(ledger.epochs_complete()));
  }
  if (ledger.leases_per_epoch() < 1) {
    return FieldError(where, "ledger.leases_per_epoch", "at least 1", absl::StrCat(ledger.leases_per_epoch()));
  }
  if (ledger.batch_size() < 1) {
    return FieldError(where, "ledger.batch_size", "at least 1", absl::StrCat(ledger.batch_size()));
  }
  if (ledger.examples_per_lease() < 1) {
    return FieldError(where, "ledger.examples_per_lease", "at least 1", absl::StrCat(ledger.examples_per_lease()));
  }
  std::set<std::pair<int64_t, int64_t>> open;
  for (int i = 0; i < ledger.open_leases_size(); ++i) {
    const OpenLease& lease = ledger.open_leases(i);
    const std::string field = absl::StrCat("ledger.open_leases[", i, "]");
    if (lease.epoch() < ledger.epochs_complete()) {
      return FieldError(where, field + ".epoch", absl::StrCat("at least ", ledger.epochs_complete()),
                        absl::StrCat(lease.epoch()));
    }
    if (lease.lease() < 0 || lease.lease() >= ledger.leases_per_epoch() ||
        !open.emplace(lease.epoch(), lease.lease()).second) {
      return FieldError(where, field + ".lease",
                        absl::StrCat("a lease from 0 to ", ledger.leases_per_epoch() - 1, ", each once"),
                        absl::StrCat(lease.lease()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOneFile(const std::string& directory, const CheckpointFile& file, FileCheck check) {
  const std::string path = (fs::path(directory) / file.name()).string();
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": the checkpoint's manifest names this file, but it is missing"));
  }
  const uintmax_t size = fs::file_size(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": cannot read the size: ", error.message()));
  if (size != static_cast<uintmax_t>(file.size_bytes())) {
    return absl::DataLossError(absl::StrCat(path, ": expected ", file.size_bytes(), " bytes, got ", size));
  }
  if (check == FileCheck::kSizes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint32_t crc32c, Crc32cOfFile(path));
  if (crc32c != file.crc32c()) {
    return absl::DataLossError(absl::StrCat(path, ": the file is damaged: expected crc32c ",
                                            absl::Hex(file.crc32c(), absl::kZeroPad8), ", got ",
                                            absl::Hex(crc32c, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::Status RemoveFile(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) return absl::InternalError(absl::StrCat(path.string(), ": cannot remove: ", error.message()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory) {
  const std::string path = ManifestPath(directory);
  absl::StatusOr<std::string> text = ReadWholeFile(path, kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(directory, ": not a checkpoint: it has no ", kManifestName, ", which is written last"));
  }
  RETURN_IF_ERROR(text.status());
  CheckpointManifest manifest;
  // Fields that this build doesn't know are of a newer format; the version tells, and a misspelt field must not pass.
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &manifest);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": expected a checkpoint's manifest: ", absl::string_view(parsed.message().data(), parsed.message().size())));
  }
  RETURN_IF_ERROR(ValidateManifest(path, manifest));
  return manifest;
}

absl::Status ValidateManifest(const std::string& where, const CheckpointManifest& manifest) {
  if (manifest.format_version() != kCheckpointFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": format_version: expected ", kCheckpointFormatVersion,
                                                      ", got ", manifest.format_version()));
  }
  if (manifest.job_digest().empty()) return FieldError(where, "job_digest", "the job's digest", "nothing");
  if (manifest.model_digest().empty()) return FieldError(where, "model_digest", "the model's digest", "nothing");
  if (manifest.optimizer().empty()) return FieldError(where, "optimizer", "an optimizer's name", "nothing");
  RETURN_IF_ERROR(ValidateLedger(where, manifest.ledger()));
  RETURN_IF_ERROR(ValidateVariables(where, manifest));
  return ValidateFiles(where, manifest);
}

absl::Status VerifyCheckpointFiles(const std::string& directory, const CheckpointManifest& manifest, FileCheck check) {
  for (const CheckpointFile& file : manifest.files()) RETURN_IF_ERROR(CheckOneFile(directory, file, check));
  return absl::OkStatus();
}

absl::Status WriteManifest(const std::string& directory, const CheckpointManifest& manifest) {
  const std::string path = ManifestPath(directory);
  RETURN_IF_ERROR(ValidateManifest(path, manifest));
  RETURN_IF_ERROR(VerifyCheckpointFiles(directory, manifest, FileCheck::kSizes));
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(manifest, &text, options);
  if (!printed.ok()) {
    return absl::InternalError(absl::StrCat(
        path, ": cannot be printed as JSON: ", absl::string_view(printed.message().data(), printed.message().size())));
  }
  // The files' own names must last before the name that lists them.
  RETURN_IF_ERROR(SyncDirectory(directory));
  RETURN_IF_ERROR(WriteFileDurably(path, text));
  // The directory's entry in its parent, which may be new.
  const fs::path parent = fs::path(directory).lexically_normal().parent_path();
  return SyncDirectory(parent.empty() ? "." : parent.string());
}

absl::Status DeleteCheckpoint(const std::string& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) return absl::OkStatus();
  RETURN_IF_ERROR(RemoveFile(ManifestPath(directory)));
  RETURN_IF_ERROR(SyncDirectory(directory));
  std::vector<fs::path> files;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    // Temporary files of a write that a crash cut short have the suffix within their names.
    if (absl::StrContains(name, kCheckpointFileSuffix) || absl::StartsWith(name, kManifestName)) {
      files.push_back(it->path());
    }
  }
  if (error) return absl::InternalError(absl::StrCat(directory, ": cannot list: ", error.message()));
  for (const fs::path& file : files) RETURN_IF_ERROR(RemoveFile(file));
  // Fails when somebody else's file lies there, which then stays.
  fs::remove(directory, error);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Crc32cOfFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  absl::Cleanup close = [fd] { ::close(fd); };
  std::vector<unsigned char> block(1 << 20);
  uint32_t crc = 0xffffffffu;
  while (true) {
    const ssize_t got = ::read(fd, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::InternalError(absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
    if (got == 0) return ~crc;
    crc = crc32_iscsi(block.data(), static_cast<int>(got), crc);
  }
}

}  // namespace lagrange

#include "proto/manifest_file.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/crc32c.h"
#include "common/file_system.h"
#include "common/status.h"
#include "common/version.h"

namespace lagrange {
namespace {

constexpr absl::string_view kCheckpointFileSuffix = ".safetensors";
constexpr int64_t kChecksumBlockBytes = 1 << 20;

std::string ManifestPath(const std::string& directory) { return JoinPath(directory, kManifestName); }

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

absl::Status CheckOneFile(const std::string& directory, const CheckpointFile& entry, FileCheck check) {
  const std::string path = JoinPath(directory, entry.name());
  const absl::StatusOr<InputFile> file = InputFile::Open(path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(absl::StrCat(path, ": the checkpoint's manifest names this file, but it is missing"));
  }
  RETURN_IF_ERROR(file.status());
  if (file->size_bytes() != entry.size_bytes()) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected ", entry.size_bytes(), " bytes, got ", file->size_bytes()));
  }
  if (check == FileCheck::kSizes) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint32_t crc32c, Crc32cOfFile(path));
  if (crc32c != entry.crc32c()) {
    return absl::DataLossError(absl::StrCat(path, ": the file is damaged: expected crc32c ",
                                            absl::Hex(entry.crc32c(), absl::kZeroPad8), ", got ",
                                            absl::Hex(crc32c, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

absl::Status RemoveIfThere(const std::string& path) {
  const absl::Status status = RemoveFile(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory) {
  const std::string path = ManifestPath(directory);
  absl::StatusOr<std::string> text = ReadFile(path, kMaxManifestBytes);
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
  RETURN_IF_ERROR(WriteFileAtomically(path, text));
  // The directory's entry in its parent, which may be new.
  return SyncDirectory(DirectoryOf(directory));
}

absl::Status DeleteCheckpoint(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  RETURN_IF_ERROR(names.status());
  RETURN_IF_ERROR(RemoveIfThere(ManifestPath(directory)));
  RETURN_IF_ERROR(SyncDirectory(directory));
  bool empty = true;
  for (const std::string& name : *names) {
    // Temporary files of a write that a crash cut short have the final name within theirs.
    if (absl::StrContains(name, kCheckpointFileSuffix) || absl::StrContains(name, kManifestName)) {
      RETURN_IF_ERROR(RemoveIfThere(JoinPath(directory, name)));
    } else {
      empty = false;
    }
  }
  return empty ? RemoveDirectory(directory) : absl::OkStatus();
}

absl::StatusOr<uint32_t> Crc32cOfFile(const std::string& path) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  std::vector<char> block(static_cast<size_t>(std::min(kChecksumBlockBytes, file.size_bytes())));
  uint32_t crc = 0;
  for (int64_t offset = 0; offset < file.size_bytes();) {
    const int64_t count = std::min<int64_t>(kChecksumBlockBytes, file.size_bytes() - offset);
    const absl::Span<char> part = absl::MakeSpan(block).first(static_cast<size_t>(count));
    RETURN_IF_ERROR(file.ReadAt(offset, part));
    crc = Crc32c(part, crc);
    offset += count;
  }
  return crc;
}

}  // namespace lagrange

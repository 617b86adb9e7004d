// The only door to the disk: whole reads with a limit, reads at an offset, and writes that are there whole or not at
// all.
//
// Calls block. Functions are thread-safe; a file object is its caller's to synchronize. Errors name the path and the
// call that failed: NotFound, PermissionDenied, AlreadyExists, ResourceExhausted (disk full, too many files),
// InvalidArgument (not a regular file, path too long), else Unavailable.

#ifndef COMMON_FILE_SYSTEM_H_
#define COMMON_FILE_SYSTEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lagrange {

// The whole of a regular file. OutOfRange when it has more than max_bytes; no more than that is allocated.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

// A file that is read in pieces, its size as it was when it was opened. Owns the descriptor.
class InputFile {
 public:
  static absl::StatusOr<InputFile> Open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) = delete;
  ~InputFile();

  int64_t size_bytes() const { return size_bytes_; }
  // Fills the destination. OutOfRange when the file ends before it is full.
  absl::Status ReadAt(int64_t offset, absl::Span<char> destination) const;

 private:
  InputFile(std::string path, int descriptor, int64_t size_bytes);

  std::string path_;
  int descriptor_;
  int64_t size_bytes_;
};

// A file under a temporary name in its final directory, until Commit has made it durable and renamed it. A writer that
// goes without Commit removes it; a process that is killed leaves it, and IsTemporaryName tells. Owns the descriptor.
class AtomicFileWriter {
 public:
  static absl::StatusOr<AtomicFileWriter> Create(const std::string& path);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&& other) = delete;
  ~AtomicFileWriter();

  absl::Status Append(absl::Span<const char> data);
  // Syncs the file, renames it over `path` if one is there, syncs the directory. Nothing may be called after it.
  absl::Status Commit();

  int64_t size_bytes() const { return size_bytes_; }
  // CRC-32C of all that was appended.
  uint32_t crc32c() const { return crc32c_; }

 private:
  AtomicFileWriter(std::string path, std::string temporary_path, int descriptor);

  std::string path_;
  std::string temporary_path_;
  int descriptor_;
  int64_t size_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents);

// Whether a name in a directory's listing is a writer's temporary one.
bool IsTemporaryName(absl::string_view name);

// With all its parents; one that is there already is fine. Each new one is made durable in its parent.
absl::Status MakeDirectories(const std::string& path);
// Names but for "." and "..", sorted. OutOfRange over max_entries.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path, int64_t max_entries = 1 << 20);
// NotFound when there is none. The directory is not synced.
absl::Status RemoveFile(const std::string& path);
// An empty one.
absl::Status RemoveDirectory(const std::string& path);
// Makes entries that were created, renamed or removed in it durable.
absl::Status SyncDirectory(const std::string& path);

bool FileExists(const std::string& path);
// One slash between the two.
std::string JoinPath(absl::string_view directory, absl::string_view name);
// "." for a bare name, "/" for "/x".
std::string DirectoryOf(absl::string_view path);

}  // namespace lagrange

#endif  // COMMON_FILE_SYSTEM_H_

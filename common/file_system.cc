#include "common/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status.h"

namespace lagrange {
namespace {

constexpr char kTemporaryMark[] = ".lagrange-tmp.";
// Each is random: process numbers come again, in containers all the time, and leftovers of killed processes stay.
constexpr int kMaxTemporaryNames = 100;

absl::Status ErrnoStatus(int error, absl::string_view path, absl::string_view call) {
  const std::string message = absl::StrCat(path, ": ", call, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EEXIST:
      return absl::AlreadyExistsError(message);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return absl::ResourceExhaustedError(message);
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL:
      return absl::InvalidArgumentError(message);
    default:
      return absl::UnavailableError(message);
  }
}

int OpenRetrying(const std::string& path, int flags, mode_t mode = 0) {
  int descriptor;
  do {
    descriptor = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  if (file.size_bytes() > max_bytes) {
    return absl::OutOfRangeError(
        absl::StrCat(path, ": expected at most ", max_bytes, " bytes, got ", file.size_bytes()));
  }
  std::string contents(file.size_bytes(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(contents)));
  return contents;
}

absl::StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int descriptor = OpenRetrying(path, O_RDONLY | O_NONBLOCK);
  if (descriptor < 0) return ErrnoStatus(errno, path, "open");
  InputFile file(path, descriptor, 0);
  struct stat info;
  if (fstat(descriptor, &info) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  file.size_bytes_ = info.st_size;
  return file;
}

InputFile::InputFile(std::string path, int descriptor, int64_t size_bytes)
    : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status InputFile::ReadAt(int64_t offset, absl::Span<char> destination) const {
  while (!destination.empty()) {
    const ssize_t count = pread(descriptor_, destination.data(), destination.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, path_, "read");
    if (count == 0) {
      return absl::OutOfRangeError(
          absl::StrCat(path_, ": ends at byte ", offset, ", expected ", destination.size(), " more"));
    }
    offset += count;
    destination.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::StatusOr<AtomicFileWriter> AtomicFileWriter::Create(const std::string& path) {
  const size_t name_begin = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  std::random_device device;
  for (int i = 0; i < kMaxTemporaryNames; ++i) {
    const uint64_t number = (uint64_t{device()} << 32) | device();
    std::string temporary_path = absl::StrCat(path.substr(0, name_begin), ".", path.substr(name_begin), kTemporaryMark,
                                              absl::Hex(number, absl::kZeroPad16));
    const int descriptor = OpenRetrying(temporary_path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (descriptor >= 0) return AtomicFileWriter(path, std::move(temporary_path), descriptor);
    if (errno != EEXIST) return ErrnoStatus(errno, temporary_path, "create");
  }
  return absl::AlreadyExistsError(absl::StrCat(path, ": ", "no free temporary name in ", kMaxTemporaryNames, " tries"));
}

AtomicFileWriter::AtomicFileWriter(std::string path, std::string temporary_path, int descriptor)
    : path_(std::move(path)), temporary_path_(std::move(temporary_path)), descriptor_(descriptor) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::move(other.temporary_path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_),
      crc32c_(other.crc32c_) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_path_.c_str());
}

absl::Status AtomicFileWriter::Append(absl::Span<const char> data) {
  CHECK(descriptor_ >= 0);
  while (!data.empty()) {
    const ssize_t count = write(descriptor_, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(errno, temporary_path_, "write");
    crc32c_ = Crc32c(data.first(count), crc32c_);
    size_bytes_ += count;
    data.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status AtomicFileWriter::Commit() {
  CHECK(descriptor_ >= 0);
  if (fsync(descriptor_) != 0) return ErrnoStatus(errno, temporary_path_, "fsync");
  // Network file systems report some write errors only here.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    const int error = errno;
    unlink(temporary_path_.c_str());
    return ErrnoStatus(error, temporary_path_, "close");
  }
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(temporary_path_.c_str());
    return ErrnoStatus(error, path_, "rename");
  }
  return SyncDirectory(DirectoryOf(path_));
}

absl::Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(writer.Append(contents));
  return writer.Commit();
}

bool IsTemporaryName(absl::string_view name) {
  return absl::StartsWith(name, ".") && absl::StrContains(name, kTemporaryMark);
}

absl::Status MakeDirectories(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    if (mkdir(prefix.c_str(), 0777) == 0) {
      RETURN_IF_ERROR(SyncDirectory(DirectoryOf(prefix)));
    } else if (errno != EEXIST) {
      // A parent on a read-only file system may be there nevertheless.
      const int error = errno;
      struct stat info;
      if (stat(prefix.c_str(), &info) != 0) return ErrnoStatus(error, prefix, "mkdir");
    }
    if (end == std::string::npos) break;
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path, "stat");
  if (!S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": expected a directory"));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path, int64_t max_entries) {
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return ErrnoStatus(errno, path, "opendir");
  const absl::Cleanup closer = [directory] { closedir(directory); };
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(directory);
    if (entry == nullptr) break;
    const absl::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (static_cast<int64_t>(names.size()) == max_entries) {
      return absl::OutOfRangeError(absl::StrCat(path, ": expected at most ", max_entries, " entries"));
    }
    names.emplace_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, path, "readdir");
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RemoveFile(const std::string& path) {
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path, "unlink");
}

absl::Status RemoveDirectory(const std::string& path) {
  return rmdir(path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus(errno, path, "rmdir");
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = OpenRetrying(path, O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return ErrnoStatus(errno, path, "open");
  const int result = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some file systems have no directories to sync.
  if (result != 0 && error != EINVAL) return ErrnoStatus(error, path, "fsync");
  return absl::OkStatus();
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, directory.empty() || absl::EndsWith(directory, "/") ? "" : "/", name);
}

std::string DirectoryOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

}  // namespace lagrange

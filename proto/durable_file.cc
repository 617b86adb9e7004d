#include "proto/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lagrange {
namespace {

absl::Status FromErrno(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
}

absl::Status WriteAndSync(int fd, const std::string& path, absl::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = ::write(fd, contents.data(), contents.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return FromErrno("cannot write", path);
    }
    contents.remove_prefix(static_cast<size_t>(written));
  }
  if (::fsync(fd) != 0) return FromErrno("cannot sync", path);
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFileDurably(const std::string& path, absl::string_view contents) {
  // The process number keeps two processes from writing one temporary file.
  const std::string temporary = absl::StrCat(path, ".tmp-", ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return FromErrno("cannot create", temporary);
  absl::Cleanup remove = [&temporary] { ::unlink(temporary.c_str()); };
  const absl::Status written = WriteAndSync(fd, temporary, contents);
  if (::close(fd) != 0 && written.ok()) return FromErrno("cannot close", temporary);
  RETURN_IF_ERROR(written);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return FromErrno("cannot rename into place", path);
  std::move(remove).Cancel();
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FromErrno("cannot open", path);
  absl::Cleanup close = [fd] { ::close(fd); };
  struct stat information;
  if (::fstat(fd, &information) != 0) return FromErrno("cannot stat", path);
  if (!S_ISREG(information.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": expected a file"));
  std::string contents;
  char block[64 * 1024];
  while (true) {
    const ssize_t got = ::read(fd, block, sizeof(block));
    if (got < 0) {
      if (errno == EINTR) continue;
      return FromErrno("cannot read", path);
    }
    if (got == 0) return contents;
    if (static_cast<int64_t>(contents.size()) + got > max_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": expected at most ", max_bytes, " bytes, got ", information.st_size));
    }
    contents.append(block, static_cast<size_t>(got));
  }
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FromErrno("cannot open", directory);
  absl::Cleanup close = [fd] { ::close(fd); };
  if (::fsync(fd) != 0) return FromErrno("cannot sync", directory);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return absl::InternalError(absl::StrCat(directory, ": cannot create the directory: ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::string> AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": cannot make the path absolute: ", error.message()));
  return absolute.lexically_normal().string();
}

}  // namespace lagrange

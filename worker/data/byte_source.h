// A file's bytes from beginning to end, decompressed on the way when the file is gzip (told by its content, not by its
// name).
//
// Caller synchronizes. Owns the open file and a buffer of 64 KiB. Errors name the file: those of common/file_system.h,
// and InvalidArgument for gzip that is damaged, cut short or followed by other bytes.

#ifndef WORKER_DATA_BYTE_SOURCE_H_
#define WORKER_DATA_BYTE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lagrange {

class ByteSource {
 public:
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& path);
  virtual ~ByteSource() = default;

  const std::string& path() const { return path_; }
  // Bytes in all; nothing for gzip, which tells only at its end.
  virtual std::optional<int64_t> size_bytes() const = 0;
  // Fills out from the front; fewer than it holds only at the end of the data.
  virtual absl::StatusOr<int64_t> Read(absl::Span<uint8_t> out) = 0;

 protected:
  explicit ByteSource(const std::string& path) : path_(path) {}

 private:
  const std::string path_;
};

}  // namespace lagrange

#endif  // WORKER_DATA_BYTE_SOURCE_H_

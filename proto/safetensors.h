// The safetensors file format (https://github.com/huggingface/safetensors, "Format"): the ps writes checkpoints in it,
// the chief verifies them, people read them with any reader of the format.
//
// A file is: header length (8 bytes, little-endian), header (JSON, padded with spaces so that the data begins on a
// multiple of 8), data. The header maps each tensor's name to {"dtype", "shape", "data_offsets": [begin, end)} and
// "__metadata__" to a map of strings. Offsets count from the end of the header. Tensors lie without gap or overlap,
// widest element first and then by name, so that each is aligned to its element and the bytes depend on content alone.
//
// Errors: InvalidArgument (the file isn't such a one; what stands there is named), NotFound, DataLoss (damage, or size
// differs), and those of common/file_system.h. All name the file. Values are const-safe, SafetensorsFile thread-safe;
// nothing here is unbounded: a header is at most kMaxSafetensorsHeaderBytes.

#ifndef PROTO_SAFETENSORS_H_
#define PROTO_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/file_system.h"

namespace lagrange {

// The limit that the format's own library has.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

enum class TensorType { kF32, kI64, kU8 };

// "F32", "I64", "U8".
absl::string_view TensorTypeName(TensorType type);
int64_t ElementBytes(TensorType type);

struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  // In bytes from the beginning of the data.
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  // In the order of their bytes.
  std::vector<TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  // Offset in the file at which the data begins.
  int64_t data_begin = 0;
  int64_t data_bytes = 0;
};

// Checks everything that the format says: names once, known element types, sizes that fit shapes, bytes contiguous.
// `json` is the header alone, `data_bytes` what follows it in the file. Errors don't name the file.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json, int64_t data_bytes);

// A tensor to be written; borrows its bytes.
struct TensorSource {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;
  absl::Span<const char> bytes;
};

TensorSource FloatTensor(std::string name, std::vector<int64_t> shape, absl::Span<const float> values);

struct WrittenFile {
  int64_t size_bytes = 0;
  uint32_t crc32c = 0;
};

// Writes the file whole or not at all (temporary name, sync, rename, sync of the directory), without a copy of it in
// memory. InvalidArgument: a name twice or not UTF-8, or bytes that don't fit the shape.
absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                             const std::map<std::string, std::string>& metadata,
                                             std::vector<TensorSource> tensors);

// An open file whose header has been checked.
class SafetensorsFile {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }

  // Null when there is none of that name. Lives as long as the file.
  const TensorEntry* Find(absl::string_view name) const;

  // Reads the tensor's floats [element_begin, element_begin + values.size()). InvalidArgument when it isn't F32 or has
  // not so many.
  absl::Status ReadFloats(const TensorEntry& tensor, int64_t element_begin, absl::Span<float> values) const;

 private:
  SafetensorsFile(std::string path, InputFile file, SafetensorsHeader header);

  const std::string path_;
  const InputFile file_;
  const SafetensorsHeader header_;
  // Into header_.tensors.
  std::map<absl::string_view, const TensorEntry*> by_name_;
};

}  // namespace lagrange

#endif  // PROTO_SAFETENSORS_H_

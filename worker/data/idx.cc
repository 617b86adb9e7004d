// The IDX format of the MNIST files: two zero bytes, the element's type, the number of dimensions, each dimension as a
// big-endian uint32, then the elements row-major. Elements stay bytes in memory, a quarter of their size as floats.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "worker/data/byte_source.h"
#include "worker/data/reader.h"

namespace lagrange {
namespace {

constexpr uint8_t kUnsignedBytes = 0x08;
// What gzip's memory begins at; it doubles from there, so that a header alone can't make us allocate what it claims.
constexpr int64_t kFirstAllocationBytes = int64_t{1} << 20;

struct IdxFile {
  std::vector<int64_t> dimensions;
  std::vector<uint8_t> elements;
};

std::string DescribeShape(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status WantBytes(const ByteSource& source, int64_t want, int64_t have, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(source.path(), ": want ", want, " bytes, have ", have, what.empty() ? "" : ": ", what));
}

// Dimensions of the data, read from behind the magic number; expected_dimensions of them.
absl::StatusOr<std::vector<int64_t>> ReadDimensions(ByteSource* source, size_t expected_dimensions) {
  std::array<uint8_t, 4> magic;
  ASSIGN_OR_RETURN(const int64_t got, source->Read(absl::MakeSpan(magic)));
  const int64_t header_bytes = 4 + 4 * static_cast<int64_t>(expected_dimensions);
  if (got < 4) return WantBytes(*source, header_bytes, got, "the file ends in its header");
  if (magic[0] != 0 || magic[1] != 0 || magic[2] != kUnsignedBytes || magic[3] != expected_dimensions) {
    const bool is_idx = magic[0] == 0 && magic[1] == 0 && magic[3] != 0;
    return absl::InvalidArgumentError(absl::StrCat(
        source->path(),
        absl::StrFormat(
            ": expected the magic number 0x%08x (IDX of unsigned bytes, %d dimensions), got 0x%02x%02x%02x%02x",
            (kUnsignedBytes << 8) | static_cast<uint32_t>(expected_dimensions), expected_dimensions, magic[0], magic[1],
            magic[2], magic[3]),
        is_idx ? absl::StrFormat(" (element type 0x%02x, %d dimensions)", magic[2], magic[3]) : " (not IDX)"));
  }
  std::vector<uint8_t> sizes(4 * expected_dimensions);
  ASSIGN_OR_RETURN(const int64_t size_bytes, source->Read(absl::MakeSpan(sizes)));
  if (size_bytes < static_cast<int64_t>(sizes.size())) {
    return WantBytes(*source, header_bytes, 4 + size_bytes, "the file ends in its header");
  }
  std::vector<int64_t> dimensions;
  for (size_t i = 0; i < sizes.size(); i += 4) {
    dimensions.push_back(int64_t{sizes[i]} << 24 | int64_t{sizes[i + 1]} << 16 | int64_t{sizes[i + 2]} << 8 |
                         int64_t{sizes[i + 3]});
  }
  return dimensions;
}

// Header and elements together.
absl::StatusOr<int64_t> CountBytes(const ByteSource& source, absl::Span<const int64_t> dimensions) {
  const int64_t header_bytes = 4 + 4 * static_cast<int64_t>(dimensions.size());
  int64_t elements = 1;
  int64_t bytes = 0;
  // A zero makes the product small whatever stands beside it.
  const bool empty = std::find(dimensions.begin(), dimensions.end(), 0) != dimensions.end();
  for (const int64_t dimension : dimensions) {
    if (!empty && __builtin_mul_overflow(elements, dimension, &elements)) elements = -1;
    if (elements < 0) break;
  }
  if (elements < 0 || __builtin_add_overflow(empty ? 0 : elements, header_bytes, &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(source.path(), ": the dimensions ", DescribeShape(dimensions),
                                                   " overflow: expected fewer than 2^63 elements"));
  }
  return bytes;
}

// The one place that allocates by what a file says.
absl::Status Resize(const ByteSource& source, int64_t bytes, std::vector<uint8_t>* elements) {
  try {
    elements->resize(bytes);
  } catch (const std::exception&) {
    return absl::ResourceExhaustedError(absl::StrCat(source.path(), ": no memory for ", bytes, " bytes"));
  }
  return absl::OkStatus();
}

// All that follows the header, which must be exactly `bytes - header_bytes`.
absl::Status ReadElements(ByteSource* source, int64_t bytes, int64_t header_bytes, std::vector<uint8_t>* elements) {
  const int64_t want = bytes - header_bytes;
  if (source->size_bytes().has_value() && *source->size_bytes() != bytes) {
    const int64_t trailing = *source->size_bytes() - bytes;
    return WantBytes(*source, bytes, *source->size_bytes(),
                     trailing == 1  ? "1 trailing byte"
                     : trailing > 1 ? absl::StrCat(trailing, " trailing bytes")
                                    : "");
  }
  const bool size_known = source->size_bytes().has_value();
  int64_t have = 0;
  while (have < want) {
    const int64_t room = size_known ? want : std::min(want, std::max(kFirstAllocationBytes, 2 * have));
    RETURN_IF_ERROR(Resize(*source, room, elements));
    ASSIGN_OR_RETURN(const int64_t got, source->Read(absl::MakeSpan(*elements).subspan(have)));
    have += got;
    if (have < room) return WantBytes(*source, bytes, header_bytes + have, "");
  }
  std::array<uint8_t, 1> beyond;
  ASSIGN_OR_RETURN(const int64_t trailing, source->Read(absl::MakeSpan(beyond)));
  if (trailing != 0) return WantBytes(*source, bytes, bytes + 1, "or more: trailing bytes");
  return absl::OkStatus();
}

absl::StatusOr<IdxFile> ReadIdx(const std::string& path, size_t expected_dimensions) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, ByteSource::Open(path));
  IdxFile file;
  ASSIGN_OR_RETURN(file.dimensions, ReadDimensions(source.get(), expected_dimensions));
  ASSIGN_OR_RETURN(const int64_t bytes, CountBytes(*source, file.dimensions));
  RETURN_IF_ERROR(ReadElements(source.get(), bytes, 4 + 4 * static_cast<int64_t>(expected_dimensions), &file.elements));
  return file;
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(std::string path, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
             const std::vector<int32_t>& example_shape, int64_t elements, const IdxFormat& format)
      : path_(std::move(path)),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        example_shape_(example_shape),
        elements_(elements),
        scale_(format.scale()),
        offset_(format.offset()) {}

  int64_t record_count() const override { return static_cast<int64_t>(labels_.size()); }
  const std::vector<int32_t>& example_shape() const override { return example_shape_; }

  absl::Status Read(absl::Span<const int64_t> records, absl::Span<float> inputs,
                    absl::Span<int32_t> labels) const override {
    if (inputs.size() != records.size() * elements_ || labels.size() != records.size()) {
      return absl::InvalidArgumentError(absl::StrCat("read of ", records.size(), " records: expected room for ",
                                                     records.size() * elements_, " inputs and ", records.size(),
                                                     " labels, got ", inputs.size(), " and ", labels.size()));
    }
    for (const int64_t record : records) {
      if (record < 0 || record >= record_count()) {
        return absl::OutOfRangeError(
            absl::StrCat(path_, ": expected a record from 0 to ", record_count() - 1, ", got ", record));
      }
    }
    for (size_t i = 0; i < records.size(); ++i) {
      Convert(pixels_.data() + records[i] * elements_, inputs.data() + i * elements_);
      labels[i] = labels_[records[i]];
    }
    return absl::OkStatus();
  }

 private:
  void Convert(const uint8_t* pixels, float* out) const {
    const float scale = scale_, offset = offset_;
    for (int64_t i = 0; i < elements_; ++i) out[i] = static_cast<float>(pixels[i]) * scale + offset;
  }

  const std::string path_;
  const std::vector<uint8_t> pixels_;
  const std::vector<uint8_t> labels_;
  const std::vector<int32_t> example_shape_;
  const int64_t elements_;
  const float scale_;
  const float offset_;
};

absl::Status CheckFormat(const IdxFormat& format, const DatasetExpectations& expectations) {
  if (format.images_path().empty()) return absl::InvalidArgumentError("idx.images_path: expected a path, got none");
  if (format.labels_path().empty()) return absl::InvalidArgumentError("idx.labels_path: expected a path, got none");
  if (!format.has_scale() || !format.has_offset() || !std::isfinite(format.scale()) ||
      !std::isfinite(format.offset())) {
    return absl::InvalidArgumentError("idx.scale and idx.offset: expected finite numbers");
  }
  // IDX has a byte for the number of dimensions, one of them for the images.
  if (expectations.example_shape.empty() || expectations.example_shape.size() > 254) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a model's input of 1 to 254 dimensions, got ", expectations.example_shape.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckAgreement(const IdxFormat& format, const IdxFile& images, const IdxFile& labels,
                            const DatasetExpectations& expectations) {
  const absl::Span<const int64_t> shape = absl::MakeConstSpan(images.dimensions).subspan(1);
  const std::vector<int64_t> expected(expectations.example_shape.begin(), expectations.example_shape.end());
  if (shape != absl::MakeConstSpan(expected)) {
    return absl::InvalidArgumentError(absl::StrCat(format.images_path(), ": expected images of ",
                                                   DescribeShape(expected), ", the model's input_shape, got ",
                                                   DescribeShape(shape)));
  }
  if (images.dimensions[0] != labels.dimensions[0]) {
    return absl::InvalidArgumentError(absl::StrCat(format.images_path(), " has ", images.dimensions[0], " images, but ",
                                                   format.labels_path(), " has ", labels.dimensions[0],
                                                   " labels, expected as many"));
  }
  if (images.dimensions[0] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(format.images_path(), ": expected at least 1 image, got 0"));
  }
  for (size_t i = 0; i < labels.elements.size(); ++i) {
    if (labels.elements[i] >= expectations.class_count) {
      return absl::InvalidArgumentError(absl::StrCat(format.labels_path(), ": record ", i,
                                                     ": expected a label from 0 to ", expectations.class_count - 1,
                                                     ", got ", static_cast<int>(labels.elements[i])));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdx(const DatasetSpec& spec, const DatasetExpectations& expectations) {
  const IdxFormat& format = spec.idx();
  RETURN_IF_ERROR(CheckFormat(format, expectations));
  // The small file first: a mistake in it is told at once.
  ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(format.labels_path(), 1));
  ASSIGN_OR_RETURN(IdxFile images, ReadIdx(format.images_path(), expectations.example_shape.size() + 1));
  RETURN_IF_ERROR(CheckAgreement(format, images, labels, expectations));
  const int64_t elements = static_cast<int64_t>(images.elements.size()) / images.dimensions[0];
  return std::make_unique<IdxDataset>(format.images_path(), std::move(images.elements), std::move(labels.elements),
                                      expectations.example_shape, elements, format);
}

const Registration<DatasetFactory> kIdx{"idx", OpenIdx};

}  // namespace
}  // namespace lagrange

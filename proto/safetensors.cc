#include "proto/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "nlohmann/json.hpp"

namespace lagrange {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";
constexpr int64_t kLengthBytes = 8;
constexpr int64_t kAlignmentBytes = 8;
// A tensor's JSON has an object in an object; deeper nesting is no header, and parsers recurse on it.
constexpr int kMaxJsonDepth = 4;
// More dimensions than any variable has; bounds what a damaged header can make us print.
constexpr size_t kMaxDimensions = 32;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie in memory");

std::string Quoted(absl::string_view name) { return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name), "\""); }

std::string ShapeText(const std::vector<int64_t>& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<TensorType> TensorTypeOf(absl::string_view name) {
  for (const TensorType type : {TensorType::kF32, TensorType::kI64, TensorType::kU8}) {
    if (TensorTypeName(type) == name) return type;
  }
  return absl::InvalidArgumentError(absl::StrCat("element type ", Quoted(name), ", expected F32, I64 or U8"));
}

// Bytes of a tensor of this shape.
absl::StatusOr<int64_t> ByteCount(TensorType type, const std::vector<int64_t>& shape) {
  int64_t bytes = ElementBytes(type);
  for (const int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeText(shape), " is out of range"));
    }
  }
  return bytes;
}

// A list of non-negative integers.
absl::StatusOr<std::vector<int64_t>> IntegersOf(const Json& json, absl::string_view field) {
  if (!json.is_array() || json.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected a list of at most ", kMaxDimensions, " whole numbers"));
  }
  std::vector<int64_t> numbers;
  for (const Json& number : json) {
    if (!number.is_number_unsigned() || number.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return absl::InvalidArgumentError(absl::StrCat(field, ": expected whole numbers from 0 to 2^63 - 1"));
    }
    numbers.push_back(static_cast<int64_t>(number.get<uint64_t>()));
  }
  return numbers;
}

absl::StatusOr<TensorEntry> TensorOf(const std::string& name, const Json& json) {
  TensorEntry tensor;
  tensor.name = name;
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string()) {
    return absl::InvalidArgumentError("expected exactly dtype, shape and data_offsets");
  }
  ASSIGN_OR_RETURN(tensor.type, TensorTypeOf(json["dtype"].get_ref<const std::string&>()));
  ASSIGN_OR_RETURN(tensor.shape, IntegersOf(json["shape"], "shape"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, IntegersOf(json["data_offsets"], "data_offsets"));
  ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(tensor.type, tensor.shape));
  if (offsets.size() != 2 || offsets[1] < offsets[0] || offsets[1] - offsets[0] != bytes) {
    return absl::InvalidArgumentError(absl::StrCat("data_offsets [", absl::StrJoin(offsets, ", "), "], but ",
                                                   TensorTypeName(tensor.type), " of shape ", ShapeText(tensor.shape),
                                                   " takes ", bytes, " bytes"));
  }
  tensor.begin = offsets[0];
  tensor.end = offsets[1];
  return tensor;
}

absl::StatusOr<std::map<std::string, std::string>> MetadataOf(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return absl::InvalidArgumentError("__metadata__: expected a map of strings");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("__metadata__: ", Quoted(key), " is not a string"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Parses JSON that may be anything; refuses nesting and keys that come twice, of which the parser would keep one.
absl::StatusOr<Json> ParseJson(absl::string_view text) {
  std::vector<std::set<std::string>> keys(kMaxJsonDepth + 1);
  std::string problem;
  const Json::parser_callback_t look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxJsonDepth) {
      problem = "is nested too deep";
      return false;
    }
    if (event == Json::parse_event_t::object_start && depth < kMaxJsonDepth) keys[depth + 1].clear();
    if (event == Json::parse_event_t::key && !keys[depth].insert(parsed.get<std::string>()).second) {
      problem = absl::StrCat("has ", Quoted(parsed.get_ref<const std::string&>()), " twice");
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), look, /*allow_exceptions=*/false);
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat("the header ", problem));
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("the header is not a JSON object");
  }
  return json;
}

absl::Status CheckContiguous(const std::vector<TensorEntry>& tensors, int64_t data_bytes) {
  int64_t position = 0;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.begin != position) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), " begins at byte ", tensor.begin,
                                                     " of the data, expected ", position));
    }
    position = tensor.end;
  }
  if (position != data_bytes) {
    return absl::DataLossError(
        absl::StrCat("the header describes ", position, " bytes of data, but the file has ", data_bytes));
  }
  return absl::OkStatus();
}

std::string LengthPrefix(uint64_t length) {
  std::string prefix(kLengthBytes, '\0');
  std::memcpy(prefix.data(), &length, kLengthBytes);
  return prefix;
}

// Length, JSON and padding: all that goes before the data. `tensors` are in the order of their bytes.
absl::StatusOr<std::string> EncodeHeader(const std::map<std::string, std::string>& metadata,
                                         const std::vector<TensorSource>& tensors) {
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadataKey] = metadata;
  int64_t position = 0;
  for (const TensorSource& tensor : tensors) {
    ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(tensor.type, tensor.shape));
    if (bytes != static_cast<int64_t>(tensor.bytes.size())) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), " has ", tensor.bytes.size(),
                                                     " bytes, its shape ", ShapeText(tensor.shape), " takes ", bytes));
    }
    if (tensor.name == kMetadataKey || json.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Quoted(tensor.name), ": its name is taken"));
    }
    json[tensor.name] = {{"dtype", std::string(TensorTypeName(tensor.type))},
                         {"shape", tensor.shape},
                         {"data_offsets", {position, position + bytes}}};
    position += bytes;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("a name or metadata is not UTF-8: ", error.what()));
  }
  text.resize((text.size() + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header takes ", text.size(), " bytes, at most ", kMaxSafetensorsHeaderBytes, " are allowed"));
  }
  return LengthPrefix(text.size()) + text;
}

absl::Status CheckHeaderLength(uint64_t length, int64_t file_bytes) {
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes) ||
      static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat("header of ", length, " bytes in a file of ", file_bytes,
                                                   "; expected at most ", kMaxSafetensorsHeaderBytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view TensorTypeName(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "F32";
    case TensorType::kI64:
      return "I64";
    case TensorType::kU8:
      break;
  }
  return "U8";
}

int64_t ElementBytes(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 4;
    case TensorType::kI64:
      return 8;
    case TensorType::kU8:
      break;
  }
  return 1;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json_text, int64_t data_bytes) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(json_text));
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + static_cast<int64_t>(json_text.size());
  header.data_bytes = data_bytes;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      ASSIGN_OR_RETURN(header.metadata, MetadataOf(value));
      continue;
    }
    absl::StatusOr<TensorEntry> tensor = TensorOf(name, value);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("tensor ", Quoted(name)));
    header.tensors.push_back(*std::move(tensor));
  }
  // Empty tensors share their offset with a neighbour: they go first.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::make_pair(a.begin, a.end) < std::make_pair(b.begin, b.end);
  });
  RETURN_IF_ERROR(CheckContiguous(header.tensors, data_bytes));
  return header;
}

TensorSource FloatTensor(std::string name, std::vector<int64_t> shape, absl::Span<const float> values) {
  return {std::move(name), TensorType::kF32, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

absl::StatusOr<WrittenFile> WriteSafetensors(const std::string& path,
                                             const std::map<std::string, std::string>& metadata,
                                             std::vector<TensorSource> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return std::make_pair(-ElementBytes(a.type), absl::string_view(a.name)) <
           std::make_pair(-ElementBytes(b.type), absl::string_view(b.name));
  });
  absl::StatusOr<std::string> header = EncodeHeader(metadata, tensors);
  if (!header.ok()) return Annotate(header.status(), path);
  ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(path));
  RETURN_IF_ERROR(file.Append(*header));
  for (const TensorSource& tensor : tensors) RETURN_IF_ERROR(file.Append(tensor.bytes));
  RETURN_IF_ERROR(file.Commit());
  return WrittenFile{file.size_bytes(), file.crc32c()};
}

SafetensorsFile::SafetensorsFile(std::string path, InputFile file, SafetensorsHeader header)
    : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {
  for (const TensorEntry& tensor : header_.tensors) by_name_[tensor.name] = &tensor;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size_bytes() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.size_bytes(), " bytes are too few for a safetensors file"));
  }
  uint64_t length = 0;
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(reinterpret_cast<char*>(&length), kLengthBytes)));
  if (absl::Status status = CheckHeaderLength(length, file.size_bytes()); !status.ok()) return Annotate(status, path);
  std::string json(length, '\0');
  RETURN_IF_ERROR(file.ReadAt(kLengthBytes, absl::MakeSpan(json.data(), json.size())));
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(json, file.size_bytes() - kLengthBytes - static_cast<int64_t>(length));
  if (!header.ok()) return Annotate(header.status(), path);
  return std::unique_ptr<SafetensorsFile>(new SafetensorsFile(path, std::move(file), *std::move(header)));
}

const TensorEntry* SafetensorsFile::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

absl::Status SafetensorsFile::ReadFloats(const TensorEntry& tensor, int64_t element_begin,
                                         absl::Span<float> values) const {
  const int64_t elements = (tensor.end - tensor.begin) / static_cast<int64_t>(sizeof(float));
  const int64_t count = static_cast<int64_t>(values.size());
  if (tensor.type != TensorType::kF32 || element_begin < 0 || count > elements || element_begin > elements - count) {
    return absl::InvalidArgumentError(absl::StrCat(
        path_, ": tensor ", Quoted(tensor.name), " holds ", elements, " elements of type ", TensorTypeName(tensor.type),
        ", but F32 [", element_begin, ", ", element_begin, " + ", count, ") was asked for"));
  }
  return file_.ReadAt(header_.data_begin + tensor.begin + element_begin * static_cast<int64_t>(sizeof(float)),
                      absl::MakeSpan(reinterpret_cast<char*>(values.data()), values.size() * sizeof(float)));
}

}  // namespace lagrange

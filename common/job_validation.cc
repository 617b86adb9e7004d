#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job_config.h"
#include "common/job_field_ranges.h"
#include "common/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace lagrange {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::Duration;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr size_t kMaxNameLength = 63;
constexpr int64_t kMaxExampleElements = int64_t{1} << 28;
constexpr int64_t kMinLeaseMs = 100;
constexpr int64_t kMaxLeaseMs = 3600 * 1000;

absl::Status Bad(absl::string_view path, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
}

// RFC 3629. A string field that isn't UTF-8 could be sent but not be received.
bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = text[i];
    const int length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0xff >> (length + 1));
    for (int k = 1; k < length; ++k) {
      const unsigned char next = text[i + k];
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const uint32_t smallest = length == 3 ? 0x800 : length == 4 ? 0x10000 : 0;
    if (code < smallest || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

// ---- every field by its own range ----------------------------------------------------------------------------------

absl::Status CheckInteger(const FieldDescriptor& field, int64_t value, bool may_be_absent, absl::string_view path) {
  const IntegerRange* range = FindIntegerRange(field);
  if (range == nullptr || (value >= range->smallest && value <= range->largest)) return absl::OkStatus();
  return Bad(path, absl::StrCat("expected ", DescribeExpectedValue(field), ", got ", value,
                                value == 0 && may_be_absent ? " or nothing" : ""));
}

absl::Status CheckNumber(const FieldDescriptor& field, float value, bool may_be_absent, absl::string_view path) {
  const NumberRange* range = FindNumberRange(field);
  if (range == nullptr || Contains(*range, value)) return absl::OkStatus();
  return Bad(path, absl::StrCat("expected ", DescribeExpectedValue(field), ", got ", value,
                                value == 0 && may_be_absent ? " or nothing" : ""));
}

absl::Status CheckString(const std::string& value, absl::string_view path) {
  if (!IsUtf8(value)) return Bad(path, "expected UTF-8");
  for (const char c : value) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return Bad(path, "expected no control characters");
  }
  return absl::OkStatus();
}

absl::Status CheckFields(const Message& message, const std::string& prefix);

// index is -1 for a field that isn't repeated.
absl::Status CheckValue(const Message& message, const FieldDescriptor& field, int index, const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  const bool one = index < 0;
  const bool may_be_absent = one && !field.has_presence();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return CheckInteger(
          field, one ? reflection.GetInt32(message, &field) : reflection.GetRepeatedInt32(message, &field, index),
          may_be_absent, path);
    case FieldDescriptor::CPPTYPE_INT64:
      return CheckInteger(
          field, one ? reflection.GetInt64(message, &field) : reflection.GetRepeatedInt64(message, &field, index),
          may_be_absent, path);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return CheckNumber(
          field, one ? reflection.GetFloat(message, &field) : reflection.GetRepeatedFloat(message, &field, index),
          may_be_absent, path);
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckString(
          one ? reflection.GetString(message, &field) : reflection.GetRepeatedString(message, &field, index), path);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckFields(
          one ? reflection.GetMessage(message, &field) : reflection.GetRepeatedMessage(message, &field, index),
          absl::StrCat(path, "."));
    default:
      return absl::OkStatus();
  }
}

absl::Status CheckFields(const Message& message, const std::string& prefix) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  for (int f = 0; f < type.field_count(); ++f) {
    const FieldDescriptor& field = *type.field(f);
    const std::string path = absl::StrCat(prefix, field.name());
    if (field.is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
        RETURN_IF_ERROR(CheckValue(message, field, i, absl::StrCat(path, "[", i, "]")));
      }
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      RETURN_IF_ERROR(CheckValue(message, field, -1, path));
    }
  }
  return absl::OkStatus();
}

// ---- what no single number says ------------------------------------------------------------------------------------

absl::Status CheckName(absl::string_view path, absl::string_view name, bool dash_allowed) {
  bool good = !name.empty() && name.size() <= kMaxNameLength;
  for (const char c : name) {
    good = good && (absl::ascii_islower(static_cast<unsigned char>(c)) ||
                    absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_' || (dash_allowed && c == '-'));
  }
  if (good) return absl::OkStatus();
  return Bad(path, absl::StrCat("expected 1 to ", kMaxNameLength, " characters of [a-z0-9_", dash_allowed ? "-" : "",
                                "], got \"", name.substr(0, 2 * kMaxNameLength), "\""));
}

// Refuses a message whose oneof "kind" (or "format") has nothing set.
absl::Status CheckOneof(absl::string_view path, const Message& message) {
  const google::protobuf::OneofDescriptor& oneof = *message.GetDescriptor()->oneof_decl(0);
  if (message.GetReflection()->HasOneof(message, &oneof)) return absl::OkStatus();
  std::vector<std::string> names;
  for (int f = 0; f < oneof.field_count(); ++f) names.push_back(oneof.field(f)->name());
  return Bad(
      path, absl::StrCat("expected ", names.size() == 1 ? "" : "one of ", absl::StrJoin(names, ", "), ", got nothing"));
}

absl::Status CheckInitializer(absl::string_view path, const InitializerSpec& initializer) {
  RETURN_IF_ERROR(CheckOneof(path, initializer));
  if (initializer.has_uniform() && !(initializer.uniform().minimum() < initializer.uniform().maximum())) {
    return Bad(absl::StrCat(path, ".uniform.maximum"),
               absl::StrCat("expected more than the minimum ", initializer.uniform().minimum(), ", got ",
                            initializer.uniform().maximum()));
  }
  return absl::OkStatus();
}

absl::Status CheckLayers(const ModelSpec& model) {
  if (model.layers_size() == 0) return Bad("model.layers", "expected at least one layer");
  std::set<std::string> names;
  for (int i = 0; i < model.layers_size(); ++i) {
    const LayerSpec& layer = model.layers(i);
    const std::string path = absl::StrCat("model.layers[", i, "]");
    RETURN_IF_ERROR(CheckOneof(path, layer));
    RETURN_IF_ERROR(CheckName(absl::StrCat(path, ".name"), layer.name(), /*dash_allowed=*/false));
    if (!names.insert(layer.name()).second) {
      return Bad(absl::StrCat(path, ".name"), absl::StrCat("two layers have the name \"", layer.name(), "\""));
    }
    if (layer.has_dense()) {
      RETURN_IF_ERROR(
          CheckInitializer(absl::StrCat(path, ".dense.kernel_initializer"), layer.dense().kernel_initializer()));
      RETURN_IF_ERROR(
          CheckInitializer(absl::StrCat(path, ".dense.bias_initializer"), layer.dense().bias_initializer()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const JobSpec& job) {
  if (!job.has_model()) return Bad("model", "required, but not given");
  if (job.model().input_shape_size() == 0) {
    return Bad("model.input_shape", "expected the shape of one example, such as 28, 28; got nothing");
  }
  int64_t elements = 1;
  for (const int32_t dimension : job.model().input_shape()) {
    if (dimension > kMaxExampleElements / elements) {
      return Bad("model.input_shape", absl::StrCat("expected a product of at most ", kMaxExampleElements));
    }
    elements *= dimension;
  }
  RETURN_IF_ERROR(CheckLayers(job.model()));
  return CheckOneof("model.loss", job.model().loss());
}

absl::Status CheckDataset(const std::string& path, const DatasetSpec& dataset) {
  RETURN_IF_ERROR(CheckOneof(path, dataset));
  if (dataset.has_idx() && dataset.idx().images_path().empty()) {
    return Bad(path + ".idx.images_path", "required, but not given");
  }
  if (dataset.has_idx() && dataset.idx().labels_path().empty()) {
    return Bad(path + ".idx.labels_path", "required, but not given");
  }
  return absl::OkStatus();
}

absl::Status CheckLeaseDuration(absl::string_view path, const Duration& lease) {
  const bool normal =
      lease.seconds() >= 0 && lease.seconds() <= kMaxLeaseMs / 1000 && lease.nanos() >= 0 && lease.nanos() < 1000000000;
  const double milliseconds = 1e3 * static_cast<double>(lease.seconds()) + 1e-6 * lease.nanos();
  if (normal && milliseconds >= kMinLeaseMs && milliseconds <= kMaxLeaseMs) return absl::OkStatus();
  return Bad(path, absl::StrCat("expected 100 ms to 1 h, got ", lease.seconds(), " s and ", lease.nanos(), " ns"));
}

}  // namespace

absl::Status ValidateJob(const JobSpec& job) {
  RETURN_IF_ERROR(CheckName("name", job.name(), /*dash_allowed=*/true));
  RETURN_IF_ERROR(CheckFields(job, ""));
  RETURN_IF_ERROR(CheckModel(job));
  if (!job.data().has_train()) return Bad("data.train", "required, but not given");
  RETURN_IF_ERROR(CheckDataset("data.train", job.data().train()));
  if (job.data().has_test()) RETURN_IF_ERROR(CheckDataset("data.test", job.data().test()));
  RETURN_IF_ERROR(CheckOneof("optimizer", job.optimizer()));
  RETURN_IF_ERROR(CheckOneof("consistency", job.consistency()));
  RETURN_IF_ERROR(CheckLeaseDuration("cluster.worker_lease", job.cluster().worker_lease()));
  return CheckLeaseDuration("cluster.ps_lease", job.cluster().ps_lease());
}

}  // namespace lagrange

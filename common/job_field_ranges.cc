#include "common/job_field_ranges.h"

#include <cmath>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"

namespace lagrange {
namespace {

using ::google::protobuf::FieldDescriptor;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

const std::map<std::string, IntegerRange>& IntegerRanges() {
  static const auto* const ranges = new std::map<std::string, IntegerRange>{
      {"lagrange.JobSpec.epochs", {1, kMaxInt32}},
      {"lagrange.JobSpec.batch_size", {1, 1048576}},
      {"lagrange.JobSpec.max_bad_pushes", {0, kMaxInt32}},
      {"lagrange.ModelSpec.input_shape", {1, int64_t{1} << 28}},
      {"lagrange.ModelSpec.class_count", {2, 1048576}},
      {"lagrange.DenseLayer.units", {1, 1048576}},
      {"lagrange.DenseLayer.input_units", {0, int64_t{1} << 28}},
      // 0: the default, which depends on how many records there are.
      {"lagrange.DataSpec.examples_per_lease", {0, kMaxInt32}},
      {"lagrange.SspConsistency.staleness", {0, 1000000}},
      {"lagrange.CheckpointSpec.max_to_keep", {1, kMaxInt32}},
      {"lagrange.CheckpointSpec.every_epochs", {1, kMaxInt32}},
      {"lagrange.EvaluationSpec.every_epochs", {1, kMaxInt32}},
      {"lagrange.EvaluationSpec.examples_per_task", {1, kMaxInt32}},
      {"lagrange.ClusterSpec.ps_count", {1, 1024}},
      {"lagrange.ClusterSpec.worker_count", {1, 1024}},
      {"lagrange.ClusterSpec.shard_bytes", {65536, 268435456}},
  };
  return *ranges;
}

const std::map<std::string, NumberRange>& NumberRanges() {
  static const auto* const ranges = new std::map<std::string, NumberRange>{
      {"lagrange.ConstantInitializer.value", NumberRange::kFinite},
      {"lagrange.UniformInitializer.minimum", NumberRange::kFinite},
      {"lagrange.UniformInitializer.maximum", NumberRange::kFinite},
      {"lagrange.NormalInitializer.mean", NumberRange::kFinite},
      {"lagrange.NormalInitializer.stddev", NumberRange::kNotNegative},
      {"lagrange.IdxFormat.scale", NumberRange::kFinite},
      {"lagrange.IdxFormat.offset", NumberRange::kFinite},
      {"lagrange.SgdOptimizer.learning_rate", NumberRange::kAboveZero},
      {"lagrange.MomentumOptimizer.learning_rate", NumberRange::kAboveZero},
      {"lagrange.MomentumOptimizer.momentum", NumberRange::kFraction},
      {"lagrange.AdamOptimizer.learning_rate", NumberRange::kAboveZero},
      {"lagrange.AdamOptimizer.beta1", NumberRange::kFraction},
      {"lagrange.AdamOptimizer.beta2", NumberRange::kFraction},
      {"lagrange.AdamOptimizer.epsilon", NumberRange::kNotNegative},
  };
  return *ranges;
}

template <typename Range>
const Range* Find(const std::map<std::string, Range>& ranges, const FieldDescriptor& field) {
  const auto found = ranges.find(field.full_name());
  return found == ranges.end() ? nullptr : &found->second;
}

std::string DescribeInteger(const FieldDescriptor& field) {
  if (const IntegerRange* range = FindIntegerRange(field); range != nullptr) {
    return absl::StrCat("an integer from ", range->smallest, " to ", range->largest);
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat("an integer from ", std::numeric_limits<int32_t>::min(), " to ", kMaxInt32);
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat("an integer from 0 to ", std::numeric_limits<uint32_t>::max());
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat("an integer from ", std::numeric_limits<int64_t>::min(), " to ",
                          std::numeric_limits<int64_t>::max());
    default:
      return absl::StrCat("an integer from 0 to ", std::numeric_limits<uint64_t>::max());
  }
}

std::string DescribeNumber(const FieldDescriptor& field) {
  const NumberRange* range = FindNumberRange(field);
  switch (range == nullptr ? NumberRange::kFinite : *range) {
    case NumberRange::kFinite:
      return "a finite number";
    case NumberRange::kAboveZero:
      return "a finite number above 0";
    case NumberRange::kNotNegative:
      return "a finite number of at least 0";
    case NumberRange::kFraction:
      return "a number from 0 to less than 1";
  }
  return "a finite number";
}

}  // namespace

const IntegerRange* FindIntegerRange(const FieldDescriptor& field) { return Find(IntegerRanges(), field); }

const NumberRange* FindNumberRange(const FieldDescriptor& field) { return Find(NumberRanges(), field); }

bool Contains(NumberRange range, float value) {
  if (!std::isfinite(value)) return false;
  switch (range) {
    case NumberRange::kFinite:
      return true;
    case NumberRange::kAboveZero:
      return value > 0;
    case NumberRange::kNotNegative:
      return value >= 0;
    case NumberRange::kFraction:
      return value >= 0 && value < 1;
  }
  return false;
}

std::string DescribeExpectedValue(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return DescribeNumber(field);
    case FieldDescriptor::CPPTYPE_STRING:
      return "a string in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields in { }";
    default:
      return DescribeInteger(field);
  }
}

}  // namespace lagrange

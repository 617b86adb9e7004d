// The ranges of the job file's numbers: what job.proto states in words, for the reader and the validation alike.
//
// Internal to //common:job_config. Thread-safe: pure functions.

#ifndef COMMON_JOB_FIELD_RANGES_H_
#define COMMON_JOB_FIELD_RANGES_H_

#include <cstdint>
#include <string>

#include "google/protobuf/descriptor.h"

namespace lagrange {

struct IntegerRange {
  int64_t smallest = 0;
  int64_t largest = 0;
};

enum class NumberRange { kFinite, kAboveZero, kNotNegative, kFraction };

// Null for fields that have no range but their type's.
const IntegerRange* FindIntegerRange(const google::protobuf::FieldDescriptor& field);
const NumberRange* FindNumberRange(const google::protobuf::FieldDescriptor& field);

bool Contains(NumberRange range, float value);

// "an integer from 1 to 2147483647", "a finite number above 0", "true or false", "a string in quotes".
std::string DescribeExpectedValue(const google::protobuf::FieldDescriptor& field);

}  // namespace lagrange

#endif  // COMMON_JOB_FIELD_RANGES_H_

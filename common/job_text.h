// Where things stand in a job file's text, and what its parser's errors mean to whoever wrote it.
//
// Internal to //common:job_config. Thread-safe: pure functions of strings; FieldLocations is const-safe.

#ifndef COMMON_JOB_TEXT_H_
#define COMMON_JOB_TEXT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "proto/job.pb.h"

namespace lagrange {

// From 1, as editors count.
struct TextPosition {
  int line = 1;
  int column = 1;
};

class FieldLocations {
 public:
  FieldLocations(absl::string_view file_name, const google::protobuf::TextFormat::ParseInfoTree& tree);

  // "FILE:LINE:COLUMN" of the field, or of the innermost message around it that is in the file, else "FILE".
  std::string Describe(absl::string_view path) const;

 private:
  std::string file_name_;
  std::map<std::string, TextPosition> positions_;
};

// A field's place in a text that doesn't parse.
struct FieldAtPosition {
  // "model.layers[1].dense.units"
  std::string path;
  // Where its name stands, and the token before the position.
  TextPosition name_position;
  TextPosition previous_position;
  // Null when the field is unknown, or when a field's name was due: then path is the message around it.
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// The field whose value was due at the position.
FieldAtPosition FindFieldAt(absl::string_view text, TextPosition position);

// "FILE:LINE:COLUMN: path: what was expected, what was found", from the parser's message.
std::string DescribeTextError(absl::string_view file_name, absl::string_view text, TextPosition position,
                              absl::string_view message);

}  // namespace lagrange

#endif  // COMMON_JOB_TEXT_H_

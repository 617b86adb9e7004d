// A job's report for people (the table at its end) and for programs (JSON).
//
// Thread-safe: pure functions on messages.

#ifndef PROTO_REPORT_TABLE_H_
#define PROTO_REPORT_TABLE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace lagrange {

// A head, one line for each epoch, and where the checkpoint lies; ends with a newline. Columns that no epoch has a
// value for (test loss and accuracy without test data) read "-".
std::string FormatReportTable(const JobReport& report);

// protobuf's JSON mapping with proto field names; fields at their defaults are printed. Internal if it can't be
// printed.
absl::StatusOr<std::string> FormatReportJson(const JobReport& report);

}  // namespace lagrange

#endif  // PROTO_REPORT_TABLE_H_

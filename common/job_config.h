// Reads a job file, fills in the defaults that job.proto states, and refuses what can't be trained.
//
// Errors are InvalidArgument (or NotFound for a file that isn't there) and read
//   "FILE:LINE:COLUMN: optimizer.adam.learning_rate: expected a finite number above 0, got -1"
// with the nearest known name for a misspelt field or enum ("unknown field \"learning_rat\" in AdamOptimizer; did you
// mean \"learning_rate\"?"). Shapes of layers are checked where layers live (worker/model/model.h); data files where
// readers live (worker/data/reader.h). Thread-safe: pure functions on strings.

#ifndef COMMON_JOB_CONFIG_H_
#define COMMON_JOB_CONFIG_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace lagrange {

// Where each field of a parsed job file stands, so that a later check can name line and column.
class FieldLocations;

struct ParsedJob {
  JobSpec spec;
  // "FILE:LINE:COLUMN" of a field path such as "model.layers[1].dense.units", or of the innermost message around it
  // that is in the file; "FILE" when none is. Copyable; null for jobs that don't come from a text.
  std::shared_ptr<const FieldLocations> locations;
};

// file_name is only for messages. The result has all defaults filled in and has passed ValidateJob.
absl::StatusOr<ParsedJob> ParseJob(absl::string_view file_name, const std::string& text);

// "FILE:LINE:COLUMN: path" for a message about a field of the job.
std::string DescribeField(const ParsedJob& job, absl::string_view path);

// Fills in what job.proto says of unset fields. Idempotent. Names layers. Leaves checkpoint.directory (the chief's to
// choose) and data.examples_per_lease (common/batch_cutter.h knows it once the records are counted).
void FillDefaults(JobSpec* job);

// Every range that job.proto states. The message begins with the field's path.
absl::Status ValidateJob(const JobSpec& job);

// SHA-256-independent identity of what a state directory or checkpoint may be continued with: a stable 64-bit hash, in
// hex, of model, data, seed, batch size, lease size, optimizer (not of epochs, cluster, consistency or paths of
// outputs).
std::string JobDigest(const JobSpec& job);

// The known name nearest to a misspelt one (Levenshtein distance, exchanged neighbours counting once, at most 1/3 of
// its length, at least 1), or "".
std::string NearestName(absl::string_view misspelt, const std::vector<std::string>& known);

// "asp", "bsp", "ssp" (staleness of the job if it is ssp, else 3) or "ssp:N".
absl::StatusOr<ConsistencySpec> ParseConsistency(absl::string_view text, const ConsistencySpec& of_the_job);

// "asp", "bsp", "ssp{3}".
std::string DescribeConsistency(const ConsistencySpec& consistency);

}  // namespace lagrange

#endif  // COMMON_JOB_CONFIG_H_

// Everything that can be known to be wrong with a job before a process is started.
//
// Thread-safe. Reads the job file and every data file that it names; starts nothing, writes nothing.

#ifndef CLI_JOB_CHECKS_H_
#define CLI_JOB_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "common/job_config.h"
#include "proto/job.pb.h"

namespace lagrange {

// What the command line overrides in a job file; absent values leave the file's.
struct JobOverrides {
  int32_t ps_count = 0;
  int32_t worker_count = 0;
  int32_t epochs = 0;
  // "", "asp", "bsp", "ssp" or "ssp:N".
  std::string consistency;
};

struct CheckedJob {
  JobSpec spec;
  int64_t parameter_count = 0;
  int64_t train_records = 0;
  // 0 without test data.
  int64_t test_records = 0;
};

// Reads, overrides, and checks ranges, layers' shapes and data files. Errors name the file, line and column or field
// path, and what was expected.
absl::StatusOr<CheckedJob> CheckJob(const std::string& job_path, const JobOverrides& overrides);

}  // namespace lagrange

#endif  // CLI_JOB_CHECKS_H_

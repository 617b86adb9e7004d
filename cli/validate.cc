#include <iostream>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "common/job_config.h"

namespace lagrange {

int RunValidate(const std::string& job_path, const JobOverrides& overrides) {
  const absl::StatusOr<CheckedJob> job = CheckJob(job_path, overrides);
  if (!job.ok()) {
    std::cerr << "lagrange validate: " << job.status().message() << "\n";
    return 2;
  }
  const JobSpec& spec = job->spec;
  std::cout << job_path << ": the job \"" << spec.name() << "\" is valid: " << FormatThousands(job->parameter_count)
            << " parameters, " << FormatThousands(job->train_records) << " training and "
            << FormatThousands(job->test_records) << " test examples, " << spec.epochs() << " epochs of batches of "
            << spec.batch_size() << ", " << DescribeConsistency(spec.consistency()) << ", " << spec.cluster().ps_count()
            << " ps, " << spec.cluster().worker_count() << " workers\n";
  return 0;
}

}  // namespace lagrange

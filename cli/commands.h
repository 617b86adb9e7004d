// The subcommands of `lagrange`. Each returns the process's exit status: 0 done, 1 failed, 2 bad input.
//
// Each prints results to stdout and everything else to stderr. Call from the process's first thread.

#ifndef CLI_COMMANDS_H_
#define CLI_COMMANDS_H_

#include <string>

#include "absl/time/time.h"
#include "cli/job_checks.h"

namespace lagrange {

struct LocalOptions {
  std::string job_path;
  JobOverrides overrides;
  // Empty: a fresh directory below ./lagrange-runs.
  std::string state_directory;
  // A checkpoint's directory; empty: start anew.
  std::string restore;
  // Empty: none but the one in the state directory.
  std::string report_path;
  // Where the daemons' programs lie; empty: beside this one.
  std::string program_directory;
  std::string log_level = "warning";
  // Of every worker. One, because the ps want the cores too: on busy cores a second thread made matrix products wait
  // for one another up to fifty times as long (docs/performance.md).
  int compute_threads = 1;
};

// Runs a chief, the ps and the workers on loopback until the job ends. Ctrl-C and SIGTERM end them all.
int RunLocal(const LocalOptions& options);

int RunValidate(const std::string& job_path, const JobOverrides& overrides);

// One answer of a chief, as text. 1 when it can't be reached within the timeout.
int RunStatus(const std::string& chief_address, absl::Duration timeout);

}  // namespace lagrange

#endif  // CLI_COMMANDS_H_

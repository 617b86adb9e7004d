// The command line of a worker daemon.
//
// For worker_main.cc. Thread-safe: a function without state.

#ifndef WORKER_WORKER_FLAGS_H_
#define WORKER_WORKER_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "absl/time/time.h"
#include "common/logging.h"

namespace lagrange {

struct WorkerFlags {
  std::string chief;
  // Absent: the chief chooses.
  std::optional<int32_t> task_index;
  // Absent: whatever the job says.
  std::optional<int32_t> expected_ps_count;
  std::optional<int32_t> expected_worker_count;
  std::string listen;
  std::string advertise_address;
  absl::Duration startup_timeout = absl::Minutes(5);
  int compute_threads = 1;
  absl::Duration step_delay;
  LogLevel log_level = LogLevel::kInfo;
};

// The flags, or the status to exit with at once: 0 after --help or --version, 2 after an error, both already printed.
std::variant<WorkerFlags, int> ParseWorkerFlags(int argc, char** argv);

}  // namespace lagrange

#endif  // WORKER_WORKER_FLAGS_H_

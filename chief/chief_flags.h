// The command line of lagrange-chief, and the job that it names.
//
// For chief_main.cc. Thread-safe: functions without state. Errors are InvalidArgument and NotFound, naming the flag or
// the file, line and column.

#ifndef CHIEF_CHIEF_FLAGS_H_
#define CHIEF_CHIEF_FLAGS_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/logging.h"
#include "proto/job.pb.h"

namespace lagrange {

struct ChiefFlags {
  std::string job_path;
  // Loopback: a chief trusts whoever can reach it, so other hosts are an explicit choice.
  std::string listen = "127.0.0.1:7470";
  // What others are told to call, "HOST:PORT"; empty: the bound address.
  std::string advertise_address;
  // Empty: ./lagrange-state/<job name>.
  std::string state_directory;
  // A checkpoint's directory, or empty.
  std::string restore_directory;
  std::string report_path;
  std::string address_file;
  // Empty: the job's.
  std::string consistency;
  // 0: the job's.
  int32_t ps_count = 0;
  int32_t worker_count = 0;
  int32_t epochs = 0;
  absl::Duration startup_timeout = absl::Minutes(5);
  LogLevel log_level = LogLevel::kInfo;
};

// The flags, or the status to exit with at once: 0 after --help or --version, 2 after an error, both already printed.
std::variant<ChiefFlags, int> ParseChiefFlags(int argc, char** argv);

// Reads the job file and lays the flags over it.
absl::StatusOr<JobSpec> LoadJob(const ChiefFlags& flags);

}  // namespace lagrange

#endif  // CHIEF_CHIEF_FLAGS_H_

// One run of `lagrange local`: starts the daemons, shows their progress, ends them.
//
// Caller synchronizes, from the process's first thread. Owns the children and a thread that asks the chief for its
// status. The order of the end: the chief ends the job and everyone exits by themselves; on a signal, workers are asked
// first (they hand back their leases), then the rest; who hasn't gone within the grace period is killed.

#ifndef CLI_LOCAL_RUN_H_
#define CLI_LOCAL_RUN_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/child_processes.h"
#include "cli/commands.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

struct DaemonPrograms {
  std::string chief;
  std::string ps;
  std::string worker;
};

// Looks in program_directory, else beside this program: flat as installed, or in bazel-bin's folders. NotFound names
// what it looked for.
absl::StatusOr<DaemonPrograms> FindDaemonPrograms(const std::string& program_directory);

class LocalRun {
 public:
  // job_path: the checked job, defaults and overrides filled in, in the state directory.
  LocalRun(const LocalOptions& options, const JobSpec& job, DaemonPrograms programs, std::string job_path);
  ~LocalRun();

  // The exit status of the command.
  int Run();

 private:
  absl::Status StartChief();
  absl::Status WaitForChiefAddress();
  absl::Status StartMembers();
  // Until the chief has ended, or a signal or the loss of all workers ends the run.
  void WatchJob();
  // Lets the rest exit by themselves, then presses harder.
  void EndMembers();

  // Lines, ends and signals of at most `timeout`.
  void PollOnce(absl::Duration timeout);
  void OnLine(const std::string& name, OutputStream stream, const std::string& line);
  void OnEnded(const ChildProcesses::Ended& ended);
  void ShowProgress();
  void ClearProgress();
  // What a person does who stopped the run and wants it back.
  std::string HowToGoOn();
  // Runs on its own thread until stop_asking_.
  void AskChief();

  const LocalOptions options_;
  const JobSpec job_;
  const DaemonPrograms programs_;
  const std::string job_path_;
  const std::string address_file_;
  const bool on_terminal_;

  ChildProcesses children_;
  // signalfd of SIGINT, SIGTERM, SIGHUP.
  int signal_fd_ = -1;
  std::string chief_address_;
  bool chief_ended_ = false;
  int chief_wait_status_ = 0;
  // 0: none.
  int signal_received_ = 0;
  int workers_alive_ = 0;
  bool member_failed_ = false;
  // When a ps ended before the chief did.
  absl::Time ps_lost_ = absl::InfiniteFuture();
  bool progress_shown_ = false;
  absl::Time next_plain_line_;

  std::thread asker_;
  std::atomic<bool> stop_asking_{false};
  absl::Mutex status_mutex_;
  JobStatus status_ ABSL_GUARDED_BY(status_mutex_);
  bool has_status_ ABSL_GUARDED_BY(status_mutex_) = false;
};

}  // namespace lagrange

#endif  // CLI_LOCAL_RUN_H_

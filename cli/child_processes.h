// The processes that `lagrange local` runs: started, listened to, ended, never left behind.
//
// Every child asks the kernel for SIGKILL at its parent's death before it becomes the daemon (prctl PR_SET_PDEATHSIG),
// so that even a SIGKILL of the parent leaves none; it has a process group of its own, so that a terminal's Ctrl-C
// reaches the parent alone, which then ends the children in order. Caller synchronizes: Start from the process's first
// thread (the kernel's signal is tied to the thread that forked), the rest from one thread. Owns the children and their
// pipes.

#ifndef CLI_CHILD_PROCESSES_H_
#define CLI_CHILD_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lagrange {

enum class OutputStream { kStdout, kStderr };

class ChildProcesses {
 public:
  // One whole line of a child, without its end.
  using LineCallback = std::function<void(const std::string& name, OutputStream stream, const std::string& line)>;

  explicit ChildProcesses(LineCallback on_line) : on_line_(std::move(on_line)) {}
  // Kills what still runs.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  // arguments[0] is the program's path. NotFound or Internal, naming the program and the cause, when it can't be run.
  absl::Status Start(const std::string& name, const std::vector<std::string>& arguments);

  struct Ended {
    std::string name;
    // As waitpid gives it.
    int wait_status = 0;
  };

  // Waits at most `timeout` for output, an end, or wake_fd becoming readable (-1: none); passes lines on, and gives the
  // children that have ended since.
  std::vector<Ended> Poll(absl::Duration timeout, int wake_fd);

  // To every living child whose name begins with the prefix.
  void Signal(const std::string& name_prefix, int signal_number);

  bool AnyAlive(const std::string& name_prefix) const;

 private:
  struct Child {
    std::string name;
    pid_t pid = -1;
    bool alive = false;
    // Read ends of stdout and stderr; -1 once closed.
    int fds[2] = {-1, -1};
    // Output that isn't a whole line yet.
    std::string partial[2];
  };

  void ReadFrom(Child* child, int which);
  void Emit(Child* child, int which, const std::string& line);
  std::vector<Ended> Reap();

  LineCallback on_line_;
  std::vector<Child> children_;
};

// "exit status 3", "killed by signal 9 (Killed)".
std::string DescribeWaitStatus(int wait_status);

}  // namespace lagrange

#endif  // CLI_CHILD_PROCESSES_H_

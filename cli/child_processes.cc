#include "cli/child_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lagrange {
namespace {

// A line longer than this is passed on in pieces: a child can't make its parent hold all it says.
constexpr size_t kMaxLineBytes = 64 << 10;

// Runs in the child between fork and exec: only async-signal-safe calls. Reports errno through error_fd.
[[noreturn]] void BecomeProgram(pid_t parent, char* const* arguments, const int (&out)[2], int error_fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before prctl: then nobody would ever end this child.
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(out[0], STDOUT_FILENO);
  ::dup2(out[1], STDERR_FILENO);
  ::execv(arguments[0], arguments);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(error_fd, &error, sizeof(error));
  ::_exit(127);
}

void CloseAll(std::initializer_list<int> fds) {
  for (const int fd : fds) {
    if (fd >= 0) ::close(fd);
  }
}

}  // namespace

std::string DescribeWaitStatus(int wait_status) {
  if (WIFEXITED(wait_status)) return absl::StrCat("exit status ", WEXITSTATUS(wait_status));
  if (WIFSIGNALED(wait_status)) {
    return absl::StrCat("killed by signal ", WTERMSIG(wait_status), " (", ::strsignal(WTERMSIG(wait_status)), ")");
  }
  return absl::StrCat("wait status ", wait_status);
}

ChildProcesses::~ChildProcesses() {
  for (Child& child : children_) {
    if (child.alive) {
      ::kill(child.pid, SIGKILL);
      ::waitpid(child.pid, nullptr, 0);
    }
    CloseAll({child.fds[0], child.fds[1]});
  }
}

absl::Status ChildProcesses::Start(const std::string& name, const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);

  int out[2] = {-1, -1}, err[2] = {-1, -1}, failure[2] = {-1, -1};
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0 || ::pipe2(failure, O_CLOEXEC) != 0) {
    const int error = errno;
    CloseAll({out[0], out[1], err[0], err[1], failure[0], failure[1]});
    return absl::InternalError(absl::StrCat("no pipes for ", name, ": ", ::strerror(error)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) BecomeProgram(parent, pointers.data(), {out[1], err[1]}, failure[1]);
  const int fork_error = errno;
  CloseAll({out[1], err[1], failure[1]});
  int exec_error = 0;
  const bool failed = pid > 0 && ::read(failure[0], &exec_error, sizeof(exec_error)) == sizeof(exec_error);
  ::close(failure[0]);
  if (pid < 0 || failed) {
    CloseAll({out[0], err[0]});
    if (failed) ::waitpid(pid, nullptr, 0);
    return absl::NotFoundError(
        absl::StrCat("can't run ", arguments[0], " as ", name, ": ", ::strerror(failed ? exec_error : fork_error)));
  }
  ::fcntl(out[0], F_SETFL, O_NONBLOCK);
  ::fcntl(err[0], F_SETFL, O_NONBLOCK);
  Child child;
  child.name = name;
  child.pid = pid;
  child.alive = true;
  child.fds[0] = out[0];
  child.fds[1] = err[0];
  children_.push_back(std::move(child));
  return absl::OkStatus();
}

void ChildProcesses::Emit(Child* child, int which, const std::string& line) {
  on_line_(child->name, which == 0 ? OutputStream::kStdout : OutputStream::kStderr, line);
}

void ChildProcesses::ReadFrom(Child* child, int which) {
  char buffer[16 << 10];
  while (child->fds[which] >= 0) {
    const ssize_t count = ::read(child->fds[which], buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    std::string& partial = child->partial[which];
    if (count <= 0) {
      if (!partial.empty()) Emit(child, which, partial);
      partial.clear();
      ::close(child->fds[which]);
      child->fds[which] = -1;
      return;
    }
    for (ssize_t i = 0; i < count; ++i) {
      if (buffer[i] != '\n') partial.push_back(buffer[i]);
      if (buffer[i] == '\n' || partial.size() >= kMaxLineBytes) {
        Emit(child, which, partial);
        partial.clear();
      }
    }
  }
}

std::vector<ChildProcesses::Ended> ChildProcesses::Reap() {
  std::vector<Ended> ended;
  for (Child& child : children_) {
    if (!child.alive) continue;
    int status = 0;
    if (::waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
    child.alive = false;
    // What it wrote before its end is still in the pipes.
    ReadFrom(&child, 0);
    ReadFrom(&child, 1);
    ended.push_back({child.name, status});
  }
  return ended;
}

std::vector<ChildProcesses::Ended> ChildProcesses::Poll(absl::Duration timeout, int wake_fd) {
  std::vector<pollfd> fds;
  std::vector<std::pair<Child*, int>> owners;
  for (Child& child : children_) {
    for (int which = 0; which < 2; ++which) {
      if (child.fds[which] < 0) continue;
      fds.push_back({child.fds[which], POLLIN, 0});
      owners.emplace_back(&child, which);
    }
  }
  if (wake_fd >= 0) fds.push_back({wake_fd, POLLIN, 0});
  ::poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  for (size_t i = 0; i < owners.size(); ++i) {
    if (fds[i].revents != 0) ReadFrom(owners[i].first, owners[i].second);
  }
  return Reap();
}

void ChildProcesses::Signal(const std::string& name_prefix, int signal_number) {
  for (const Child& child : children_) {
    if (child.alive && absl::StartsWith(child.name, name_prefix)) ::kill(child.pid, signal_number);
  }
}

bool ChildProcesses::AnyAlive(const std::string& name_prefix) const {
  for (const Child& child : children_) {
    if (child.alive && absl::StartsWith(child.name, name_prefix)) return true;
  }
  return false;
}

}  // namespace lagrange

#include "cli/local_run.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "cli/chief_connection.h"
#include "cli/progress_line.h"
#include "common/file_system.h"
#include "common/status.h"

namespace lagrange {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(200);
constexpr absl::Duration kPlainLineInterval = absl::Seconds(10);
// The chief opens its ledger and verifies a restore before it listens: a large checkpoint is read whole.
constexpr absl::Duration kChiefStartTimeout = absl::Minutes(10);
// After the chief has ended the members have heard of it; what they still do is bounded by a step or a file.
constexpr absl::Duration kExitGrace = absl::Seconds(15);
// A chief misses a ps after its lease (10 s unless the job says otherwise) and says what that means, unless it is still
// waiting for that ps to register, which it would go on doing.
constexpr absl::Duration kLostPsGrace = absl::Seconds(20);
constexpr absl::Duration kSignalGrace = absl::Seconds(5);
constexpr int64_t kMaxAddressFileBytes = 4096;

int TerminalColumns() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool Executable(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

std::string DirectoryOfThisProgram() {
  char buffer[4096];
  const ssize_t count = ::readlink("/proc/self/exe", buffer, sizeof(buffer));
  if (count <= 0) return ".";
  const std::string path(buffer, count);
  return path.substr(0, path.rfind('/'));
}

absl::StatusOr<std::string> FindProgram(const std::vector<std::string>& directories, const std::string& role) {
  std::string tried;
  for (const std::string& directory : directories) {
    for (const std::string& path :
         {absl::StrCat(directory, "/lagrange-", role), absl::StrCat(directory, "/../", role, "/lagrange-", role)}) {
      if (Executable(path)) return path;
      absl::StrAppend(&tried, tried.empty() ? "" : ", ", path);
    }
  }
  return absl::NotFoundError(absl::StrCat("no program lagrange-", role, "; looked for ", tried));
}

}  // namespace

absl::StatusOr<DaemonPrograms> FindDaemonPrograms(const std::string& program_directory) {
  std::vector<std::string> directories;
  directories.push_back(program_directory.empty() ? DirectoryOfThisProgram() : program_directory);
  DaemonPrograms programs;
  ASSIGN_OR_RETURN(programs.chief, FindProgram(directories, "chief"));
  ASSIGN_OR_RETURN(programs.ps, FindProgram(directories, "ps"));
  ASSIGN_OR_RETURN(programs.worker, FindProgram(directories, "worker"));
  return programs;
}

LocalRun::LocalRun(const LocalOptions& options, const JobSpec& job, DaemonPrograms programs, std::string job_path)
    : options_(options),
      job_(job),
      programs_(std::move(programs)),
      job_path_(std::move(job_path)),
      address_file_(absl::StrCat(options.state_directory, "/chief.address")),
      on_terminal_(::isatty(STDERR_FILENO) == 1),
      children_([this](const std::string& name, OutputStream stream, const std::string& line) {
        OnLine(name, stream, line);
      }) {}

LocalRun::~LocalRun() {
  stop_asking_ = true;
  if (asker_.joinable()) asker_.join();
  if (signal_fd_ >= 0) ::close(signal_fd_);
}

int LocalRun::Run() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal_number);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);

  absl::Status started = StartChief();
  if (started.ok()) started = WaitForChiefAddress();
  if (started.ok() && !chief_ended_ && signal_received_ == 0) started = StartMembers();
  if (!started.ok()) {
    std::cerr << "lagrange local: " << started.message() << "\n";
    children_.Signal("", SIGTERM);
    EndMembers();
    return 1;
  }
  WatchJob();
  const bool chief_ended_the_job = chief_ended_;
  ClearProgress();
  EndMembers();
  if (signal_received_ != 0) {
    std::cerr << "lagrange local: ended by signal " << signal_received_ << "; " << HowToGoOn() << "\n";
    return 128 + signal_received_;
  }
  if (!chief_ended_the_job) return 1;
  if (!WIFEXITED(chief_wait_status_)) {
    std::cerr << "lagrange local: the chief ended: " << DescribeWaitStatus(chief_wait_status_) << "\n";
    return 1;
  }
  const int exit_status = WEXITSTATUS(chief_wait_status_);
  return exit_status == 0 && member_failed_ ? 1 : exit_status;
}

std::string LocalRun::HowToGoOn() {
  absl::MutexLock lock(&status_mutex_);
  const std::string& checkpoint = status_.report().checkpoint();
  if (checkpoint.empty()) return "there is no checkpoint yet";
  return absl::StrCat("go on from its last checkpoint with --restore=", checkpoint);
}

absl::Status LocalRun::StartChief() {
  std::vector<std::string> arguments = {programs_.chief,
                                        absl::StrCat("--job=", job_path_),
                                        "--listen=127.0.0.1:0",
                                        absl::StrCat("--state_dir=", options_.state_directory),
                                        absl::StrCat("--address_file=", address_file_),
                                        absl::StrCat("--report=", options_.report_path),
                                        absl::StrCat("--log_level=", options_.log_level)};
  if (!options_.restore.empty()) arguments.push_back(absl::StrCat("--restore=", options_.restore));
  return children_.Start("chief", arguments);
}

absl::Status LocalRun::WaitForChiefAddress() {
  const absl::Time deadline = absl::Now() + kChiefStartTimeout;
  while (!chief_ended_ && signal_received_ == 0) {
    const absl::StatusOr<std::string> address = ReadFile(address_file_, kMaxAddressFileBytes);
    if (address.ok()) {
      chief_address_ = std::string(absl::StripAsciiWhitespace(*address));
      return absl::OkStatus();
    }
    if (absl::Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the chief did not listen within ", absl::FormatDuration(kChiefStartTimeout)));
    }
    PollOnce(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

absl::Status LocalRun::StartMembers() {
  const std::string chief = absl::StrCat("--chief=", chief_address_);
  const std::string log_level = absl::StrCat("--log_level=", options_.log_level);
  for (int index = 0; index < job_.cluster().ps_count(); ++index) {
    RETURN_IF_ERROR(children_.Start(absl::StrCat("ps ", index), {programs_.ps, chief, log_level, "--listen=127.0.0.1:0",
                                                                 absl::StrCat("--task_index=", index)}));
  }
  const int workers = job_.cluster().worker_count();
  for (int index = 0; index < workers; ++index) {
    RETURN_IF_ERROR(children_.Start(absl::StrCat("worker ", index),
                                    {programs_.worker, chief, log_level, absl::StrCat("--task_index=", index),
                                     absl::StrCat("--compute_threads=", options_.compute_threads)}));
    ++workers_alive_;
  }
  // After the last fork: gRPC's threads and forks don't mix.
  asker_ = std::thread([this] { AskChief(); });
  return absl::OkStatus();
}

void LocalRun::WatchJob() {
  next_plain_line_ = absl::Now() + kPlainLineInterval;
  while (!chief_ended_ && signal_received_ == 0) {
    PollOnce(kPollInterval);
    ShowProgress();
    if (absl::Now() - ps_lost_ > kLostPsGrace) {
      ClearProgress();
      std::cerr << "lagrange local: a ps is lost, and its shards with it\n";
      break;
    }
    if (workers_alive_ == 0 && member_failed_ && !chief_ended_) {
      ClearProgress();
      std::cerr << "lagrange local: no worker is left\n";
      // Whoever failed may have told the chief why; it then ends by itself and says so.
      const absl::Time deadline = absl::Now() + kSignalGrace;
      while (!chief_ended_ && absl::Now() < deadline) PollOnce(kPollInterval);
      break;
    }
  }
}

void LocalRun::EndMembers() {
  if (signal_received_ != 0 || !chief_ended_) {
    children_.Signal("worker", SIGTERM);
    const absl::Time deadline = absl::Now() + kSignalGrace;
    while (children_.AnyAlive("worker") && absl::Now() < deadline) PollOnce(kPollInterval);
    children_.Signal("", SIGTERM);
  }
  const absl::Duration grace = signal_received_ != 0 ? kSignalGrace : kExitGrace;
  const absl::Time deadline = absl::Now() + grace;
  while (children_.AnyAlive("") && absl::Now() < deadline) PollOnce(kPollInterval);
  if (children_.AnyAlive("")) {
    member_failed_ = true;
    std::cerr << "lagrange local: killing what has not ended within " << absl::FormatDuration(grace) << "\n";
    children_.Signal("", SIGKILL);
    while (children_.AnyAlive("")) PollOnce(kPollInterval);
  }
}

void LocalRun::PollOnce(absl::Duration timeout) {
  for (const ChildProcesses::Ended& ended : children_.Poll(timeout, signal_fd_)) OnEnded(ended);
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    signal_received_ = static_cast<int>(info.ssi_signo);
  }
}

void LocalRun::OnEnded(const ChildProcesses::Ended& ended) {
  if (ended.name == "chief") {
    chief_ended_ = true;
    chief_wait_status_ = ended.wait_status;
    return;
  }
  if (absl::StartsWith(ended.name, "worker")) --workers_alive_;
  if (ended.wait_status != 0 && signal_received_ == 0) {
    member_failed_ = member_failed_ || !absl::StartsWith(ended.name, "worker") || workers_alive_ == 0;
    if (absl::StartsWith(ended.name, "ps")) ps_lost_ = std::min(ps_lost_, absl::Now());
    ClearProgress();
    std::cerr << ended.name << ": " << DescribeWaitStatus(ended.wait_status) << "\n";
  }
}

void LocalRun::OnLine(const std::string& name, OutputStream stream, const std::string& line) {
  ClearProgress();
  if (name == "chief" && stream == OutputStream::kStdout) {
    std::cout << line << std::endl;
  } else {
    std::cerr << line << std::endl;
  }
}

void LocalRun::ShowProgress() {
  JobStatus status;
  {
    absl::MutexLock lock(&status_mutex_);
    if (!has_status_) return;
    status = status_;
  }
  if (on_terminal_) {
    const bool training = status.epoch() > 0 && status.examples_per_epoch() > 0;
    std::string text = training ? ProgressBar(status, TerminalColumns() - 1) : ProgressText(status);
    text.resize(std::min<size_t>(text.size(), std::max(1, TerminalColumns() - 1)));
    std::cerr << "\r\x1b[K" << text << std::flush;
    progress_shown_ = true;
  } else if (absl::Now() >= next_plain_line_) {
    next_plain_line_ = absl::Now() + kPlainLineInterval;
    std::cerr << ProgressText(status) << std::endl;
  }
}

void LocalRun::ClearProgress() {
  if (!progress_shown_) return;
  std::cerr << "\r\x1b[K" << std::flush;
  progress_shown_ = false;
}

void LocalRun::AskChief() {
  ChiefConnection chief(chief_address_);
  while (!stop_asking_) {
    absl::StatusOr<JobStatus> status = chief.GetStatus(absl::Seconds(2));
    if (status.ok()) {
      absl::MutexLock lock(&status_mutex_);
      status_ = *std::move(status);
      has_status_ = true;
    }
    for (int i = 0; i < 5 && !stop_asking_; ++i) absl::SleepFor(absl::Milliseconds(100));
  }
}

}  // namespace lagrange

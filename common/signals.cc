#include "common/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"

namespace lagrange {
namespace {

sigset_t StopSignalSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignalSet();
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
}

void RestoreStopSignals() {
  const sigset_t set = StopSignalSet();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

absl::StatusOr<std::unique_ptr<StopSignals>> StopSignals::Watch(std::function<void(int)> on_signal) {
  const sigset_t set = StopSignalSet();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) return absl::ResourceExhaustedError(absl::StrCat("signalfd: ", std::strerror(errno)));
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    const int error = errno;
    close(signals);
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", std::strerror(error)));
  }
  return std::unique_ptr<StopSignals>(new StopSignals(signals, stop, std::move(on_signal)));
}

StopSignals::StopSignals(int signals, int stop, std::function<void(int)> on_signal)
    : signals_(signals), stop_(stop), on_signal_(std::move(on_signal)), thread_([this] { Run(); }) {}

StopSignals::~StopSignals() {
  const uint64_t one = 1;
  CHECK(write(stop_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  close(signals_);
  close(stop_);
}

void StopSignals::Run() {
  while (true) {
    pollfd ready[] = {{signals_, POLLIN, 0}, {stop_, POLLIN, 0}};
    if (poll(ready, 2, -1) < 0) {
      CHECK(errno == EINTR);
      continue;
    }
    signalfd_siginfo info;
    if (ready[0].revents != 0 && read(signals_, &info, sizeof(info)) == sizeof(info)) {
      on_signal_(static_cast<int>(info.ssi_signo));
    } else if (ready[1].revents != 0) {
      return;
    }
  }
}

}  // namespace lagrange

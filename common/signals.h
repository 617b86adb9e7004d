// SIGTERM and SIGINT as calls on an ordinary thread, where anything may be done.
//
// Handlers may do next to nothing, and as PID 1 of a container a process without one ignores SIGTERM; so both signals
// are blocked in all threads and one thread reads them from a descriptor.

#ifndef COMMON_SIGNALS_H_
#define COMMON_SIGNALS_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

namespace lagrange {

// REQUIRES: before any thread is started; threads inherit it. Children do too: see RestoreStopSignals.
void BlockStopSignals();

// In a child between fork and exec, so that SIGTERM ends the new program again. Async-signal-safe.
void RestoreStopSignals();

// Calls on_signal(SIGTERM or SIGINT) for each signal, on a thread of its own; signals that came since BlockStopSignals
// come too. Thread-safe; owns thread and descriptors; the destructor waits for a call that is running.
class StopSignals {
 public:
  // REQUIRES: BlockStopSignals has been called. ResourceExhausted: no descriptors left.
  static absl::StatusOr<std::unique_ptr<StopSignals>> Watch(std::function<void(int)> on_signal);
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

 private:
  StopSignals(int signals, int stop, std::function<void(int)> on_signal);
  void Run();

  const int signals_;
  const int stop_;
  const std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace lagrange

#endif  // COMMON_SIGNALS_H_

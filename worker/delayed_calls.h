// Functions to be called later, one after another, on a thread of their own.
//
// For what gRPC's threads may not do themselves: wait, or call out while gRPC holds its locks. Thread-safe. Owns the
// thread; what hasn't run when it stops is dropped.

#ifndef WORKER_DELAYED_CALLS_H_
#define WORKER_DELAYED_CALLS_H_

#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lagrange {

class DelayedCalls {
 public:
  DelayedCalls() : thread_([this] { Serve(); }) {}
  ~DelayedCalls() { Stop(); }

  // Runs after `delay`, those of equal time in the order given. May be called by what runs.
  void Run(absl::Duration delay, std::function<void()> call) {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) calls_.emplace(absl::Now() + delay, std::move(call));
  }

  // Waits for a call in progress. REQUIRES: not from within a call.
  void Stop() {
    std::multimap<absl::Time, std::function<void()>> dropped;
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
      dropped.swap(calls_);
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool Due() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!calls_.empty() && calls_.begin()->first <= absl::Now());
  }
  bool Changed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || (!calls_.empty() && calls_.begin()->first < waited_for_);
  }

  void Serve() {
    while (true) {
      std::function<void()> call;
      {
        absl::MutexLock lock(&mutex_);
        while (!Due()) {
          waited_for_ = calls_.empty() ? absl::InfiniteFuture() : calls_.begin()->first;
          mutex_.AwaitWithDeadline(absl::Condition(this, &DelayedCalls::Changed), waited_for_);
        }
        if (stopping_) return;
        call = std::move(calls_.begin()->second);
        calls_.erase(calls_.begin());
      }
      call();
    }
  }

  // A leaf: nothing is locked under it.
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time waited_for_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Time, std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  // Last: it uses all of the above from its start.
  std::thread thread_;
};

}  // namespace lagrange

#endif  // WORKER_DELAYED_CALLS_H_

// One thread that does the worker's long work in order: opening data, gradients, evaluation.
//
// Thread-safe. Owns its thread; the destructor waits for the work that is running and drops what hasn't begun. Its
// queue is bounded by its user: the worker gives it one thing at a time.

#ifndef WORKER_COMPUTE_THREAD_H_
#define WORKER_COMPUTE_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lagrange {

class ComputeThread {
 public:
  ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;
  ~ComputeThread();

  void Do(std::function<void()> work);

  // From within work: waits so long, or until the thread is asked to end.
  void Pause(absl::Duration duration);

 private:
  void Loop();
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !queue_.empty(); }

  // Taken under no other lock; none is taken under it.
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lagrange

#endif  // WORKER_COMPUTE_THREAD_H_

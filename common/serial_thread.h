// One thread that does another thread's long work in order: the chief's writes to disk, the worker's gradients.
//
// Thread-safe. Owns its thread; the destructor waits for the work that is running, and finishes or drops what hasn't
// begun, as AtEnd says. The queue is bounded by its user: the chief has at most one manifest and max_to_keep deletions
// under way, the worker one thing at a time.

#ifndef COMMON_SERIAL_THREAD_H_
#define COMMON_SERIAL_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lagrange {

class SerialThread {
 public:
  enum class AtEnd { kFinish, kDrop };

  explicit SerialThread(AtEnd at_end);
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;
  ~SerialThread();

  void Do(std::function<void()> work);

  // From within work: waits so long, or until the thread is asked to end.
  void Pause(absl::Duration duration);

 private:
  void Loop();
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !queue_.empty(); }

  const AtEnd at_end_;
  // Taken under no other lock; none is taken under it.
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lagrange

#endif  // COMMON_SERIAL_THREAD_H_

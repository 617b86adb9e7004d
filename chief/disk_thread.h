// One thread that does slow work on the disk in order, so that the thread of decisions never waits for it.
//
// Thread-safe. Owns its thread; the destructor does all that was given to it first. Its queue is bounded by its user:
// the chief has at most one manifest and max_to_keep deletions under way.

#ifndef CHIEF_DISK_THREAD_H_
#define CHIEF_DISK_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lagrange {

class DiskThread {
 public:
  DiskThread();
  DiskThread(const DiskThread&) = delete;
  DiskThread& operator=(const DiskThread&) = delete;
  ~DiskThread();

  void Do(std::function<void()> work);

 private:
  void Loop();
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !queue_.empty(); }

  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lagrange

#endif  // CHIEF_DISK_THREAD_H_

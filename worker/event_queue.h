// Events from many threads for the one that decides.
//
// Thread-safe. Post never blocks: what comes above the bound is dropped, which the step loop takes for a lost message.
// Events run on the thread that takes them.

#ifndef WORKER_EVENT_QUEUE_H_
#define WORKER_EVENT_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace lagrange {

class EventQueue {
 public:
  using Event = std::function<void()>;

  // A worker has a handful of requests outstanding at each of at most 1,024 ps.
  static constexpr size_t kMaxEvents = 16384;

  // False: dropped.
  bool Post(Event event);
  // Never dropped: for what nobody would send again. Bounded by its user.
  void PostAlways(Event event);

  // The oldest event, or null when none came within the timeout.
  Event Take(absl::Duration timeout);

 private:
  bool HasEvents() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !events_.empty(); }

  // Taken under no other lock; none is taken under it.
  absl::Mutex mutex_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lagrange

#endif  // WORKER_EVENT_QUEUE_H_

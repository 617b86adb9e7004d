#include "worker/event_queue.h"

#include <utility>

namespace lagrange {

bool EventQueue::Post(Event event) {
  absl::MutexLock lock(&mutex_);
  if (events_.size() >= kMaxEvents) return false;
  events_.push_back(std::move(event));
  return true;
}

void EventQueue::PostAlways(Event event) {
  absl::MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
}

EventQueue::Event EventQueue::Take(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  if (!mutex_.AwaitWithTimeout(absl::Condition(this, &EventQueue::HasEvents), timeout)) return nullptr;
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace lagrange

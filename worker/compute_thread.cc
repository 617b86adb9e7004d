#include "worker/compute_thread.h"

#include <utility>

namespace lagrange {

ComputeThread::ComputeThread() : thread_([this] { Loop(); }) {}

ComputeThread::~ComputeThread() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void ComputeThread::Do(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
}

void ComputeThread::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&ending_), duration);
}

void ComputeThread::Loop() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ComputeThread::HasNews));
      if (ending_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace lagrange

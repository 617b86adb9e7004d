#include "common/serial_thread.h"

#include <utility>

namespace lagrange {

SerialThread::SerialThread(AtEnd at_end) : at_end_(at_end), thread_([this] { Loop(); }) {}

SerialThread::~SerialThread() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void SerialThread::Do(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
}

void SerialThread::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&ending_), duration);
}

void SerialThread::Loop() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &SerialThread::HasNews));
      if (queue_.empty() || (ending_ && at_end_ == AtEnd::kDrop)) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace lagrange

#include "chief/disk_thread.h"

#include <utility>

namespace lagrange {

DiskThread::DiskThread() : thread_([this] { Loop(); }) {}

DiskThread::~DiskThread() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void DiskThread::Do(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  queue_.push_back(std::move(work));
}

void DiskThread::Loop() {
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &DiskThread::HasNews));
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace lagrange

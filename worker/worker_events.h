// Worker::Deliver, for the two source files of Worker. Nobody else includes it.

#ifndef WORKER_WORKER_EVENTS_H_
#define WORKER_WORKER_EVENTS_H_

#include <variant>

#include "worker/worker.h"

namespace lagrange {

// Gives the step loop an event by call(now, effects), then does what it answers.
template <typename Call>
void Worker::Deliver(Call call) {
  WorkerEffects effects;
  call(clock_->Now(), &effects);
  for (const WorkerEffect& effect : effects) {
    if (failing_) return;
    std::visit([this](const auto& what) { Do(what); }, effect);
  }
}

}  // namespace lagrange

#endif  // WORKER_WORKER_EVENTS_H_

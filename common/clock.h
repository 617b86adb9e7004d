// The only door to the time of day.
//
// Cores are given the time as an argument; shells ask a Clock that main made. Thread-safe.

#ifndef COMMON_CLOCK_H_
#define COMMON_CLOCK_H_

#include <time.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lagrange {

class Clock {
 public:
  virtual ~Clock() = default;
  // Never less than an earlier answer.
  virtual absl::Time Now() const = 0;
};

// Wall time when it was made, plus what the monotonic clock has counted since: leases must not lapse because somebody
// set the machine's time.
class RealClock final : public Clock {
 public:
  RealClock() : start_(absl::Now()), start_tick_(Tick()) {}
  absl::Time Now() const override { return start_ + (Tick() - start_tick_); }

 private:
  static absl::Duration Tick() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::DurationFromTimespec(now);
  }

  const absl::Time start_;
  const absl::Duration start_tick_;
};

}  // namespace lagrange

#endif  // COMMON_CLOCK_H_

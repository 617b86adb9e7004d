// Events a second over the last few seconds.
//
// Caller synchronizes; times never go back. Owns a few dozen counts at most.

#ifndef WORKER_RATE_METER_H_
#define WORKER_RATE_METER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace lagrange {

class RateMeter {
 public:
  void Add(int64_t count, absl::Time now) {
    total_ += count;
    if (first_ == absl::InfiniteFuture()) first_ = now;
    if (!counts_.empty() && now - counts_.back().first < kResolution) {
      counts_.back().second += count;
    } else {
      counts_.emplace_back(now, count);
    }
  }

  // Over the window, or since the first event when that is nearer; 0 before there is anything to measure.
  double PerSecond(absl::Time now) {
    while (!counts_.empty() && counts_.front().first <= now - kWindow) counts_.pop_front();
    const absl::Duration span = std::min(kWindow, now - first_);
    if (counts_.empty() || span < kResolution) return 0;
    int64_t sum = 0;
    for (const auto& [time, count] : counts_) sum += count;
    return static_cast<double>(sum) / absl::ToDoubleSeconds(span);
  }

  int64_t total() const { return total_; }

 private:
  static constexpr absl::Duration kWindow = absl::Seconds(5);
  // Events nearer than this share a count: the bound of counts_ is their quotient.
  static constexpr absl::Duration kResolution = absl::Milliseconds(100);

  int64_t total_ = 0;
  absl::Time first_ = absl::InfiniteFuture();
  std::deque<std::pair<absl::Time, int64_t>> counts_;
};

}  // namespace lagrange

#endif  // WORKER_RATE_METER_H_

// Least time of a call over many short rounds: on a machine with other work, that of the rounds nobody disturbed.

#ifndef TESTS_BENCHMARKS_COMPUTE_TIMING_H_
#define TESTS_BENCHMARKS_COMPUTE_TIMING_H_

#include <algorithm>
#include <chrono>
#include <limits>

namespace lagrange {

constexpr int kTimingRounds = 400;
// Far above the clock's resolution, far below a scheduler's time slice.
constexpr double kRoundSeconds = 100e-6;
// A machine so loaded that the rounds take longer gives what it can.
constexpr double kMostSeconds = 2;

// Calls until the round's time is over, at least once; their mean in seconds.
template <typename Call>
double SecondsPerCall(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  double elapsed = 0;
  int calls = 0;
  do {
    call();
    ++calls;
    elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } while (elapsed < kRoundSeconds);
  return elapsed / calls;
}

// Calls "round" as often as is worth it.
template <typename Round>
void RunRounds(const Round& round) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimingRounds; ++i) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > kMostSeconds) break;
    round();
  }
}

template <typename Call>
double LeastSeconds(const Call& call) {
  double least = std::numeric_limits<double>::infinity();
  RunRounds([&] { least = std::min(least, SecondsPerCall(call)); });
  return least;
}

}  // namespace lagrange

#endif  // TESTS_BENCHMARKS_COMPUTE_TIMING_H_

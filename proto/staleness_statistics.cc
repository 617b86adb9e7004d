#include "proto/staleness_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lagrange {
namespace {

// A ps that counts 2^40 pushes has run for years; larger numbers are garbage, and sums of 1024 such can't overflow.
constexpr int64_t kMaxCount = int64_t{1} << 40;

int64_t Clamped(int64_t value) { return std::clamp<int64_t>(value, 0, kMaxCount); }

// The sums are of clamped numbers, but epochs may be many.
int64_t AddSaturated(int64_t a, int64_t b) {
  return a > std::numeric_limits<int64_t>::max() - b ? std::numeric_limits<int64_t>::max() : a + b;
}

}  // namespace

void MergeStaleness(const StalenessStatistics& from, StalenessStatistics* into) {
  while (into->version_counts_size() < kStalenessBuckets) into->add_version_counts(0);
  for (int i = 0; i < std::min(kStalenessBuckets, from.version_counts_size()); ++i) {
    into->set_version_counts(i, AddSaturated(into->version_counts(i), Clamped(from.version_counts(i))));
  }
  into->set_version_sum(AddSaturated(into->version_sum(), Clamped(from.version_sum())));
  into->set_clocks_max(std::max(into->clocks_max(), Clamped(from.clocks_max())));
  into->set_pushes(AddSaturated(into->pushes(), Clamped(from.pushes())));
}

double MeanStaleness(const StalenessStatistics& staleness) {
  double total = 0;
  for (const int64_t count : staleness.version_counts()) total += static_cast<double>(count);
  return total == 0 ? 0 : static_cast<double>(staleness.version_sum()) / total;
}

double StalenessPercentile(const StalenessStatistics& staleness, double fraction) {
  double total = 0;
  for (const int64_t count : staleness.version_counts()) total += static_cast<double>(count);
  if (total == 0) return 0;
  const double rank = std::ceil(fraction * total);
  double seen = 0;
  for (int i = 0; i < staleness.version_counts_size(); ++i) {
    seen += static_cast<double>(staleness.version_counts(i));
    if (seen >= rank) return i;
  }
  return kStalenessBuckets - 1;
}

}  // namespace lagrange

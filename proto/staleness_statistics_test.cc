#include "proto/staleness_statistics.h"

#include <limits>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

StalenessStatistics Make(const std::vector<std::pair<int, int64_t>>& counts) {
  StalenessStatistics staleness;
  for (int i = 0; i < kStalenessBuckets; ++i) staleness.add_version_counts(0);
  for (const auto& [versions, count] : counts) {
    staleness.set_version_counts(versions, count);
    staleness.set_version_sum(staleness.version_sum() + versions * count);
  }
  return staleness;
}

TEST(Staleness, MeanAndPercentileOfTwoPs) {
  StalenessStatistics merged;
  MergeStaleness(Make({{0, 90}, {3, 8}}), &merged);
  MergeStaleness(Make({{5, 2}}), &merged);
  EXPECT_DOUBLE_EQ(MeanStaleness(merged), 0.34);
  EXPECT_EQ(StalenessPercentile(merged, 0.90), 0);
  EXPECT_EQ(StalenessPercentile(merged, 0.98), 3);
  EXPECT_EQ(StalenessPercentile(merged, 0.99), 5);
}

// The last rank that 99 hundredths cover, whatever the rounding of 0.99.
TEST(Staleness, PercentileIsTheSmallestBucketThatCoversIt) {
  EXPECT_EQ(StalenessPercentile(Make({{0, 99}, {1, 1}}), 0.99), 0);
  EXPECT_EQ(StalenessPercentile(Make({{0, 98}, {1, 2}}), 0.99), 1);
  EXPECT_EQ(StalenessPercentile(Make({{0, 990000}, {1, 10000}}), 0.99), 0);
  EXPECT_EQ(StalenessPercentile(Make({{2, 5}}), 0.99), 2);
}

TEST(Staleness, OfNothingIsZero) {
  EXPECT_EQ(MeanStaleness(StalenessStatistics()), 0);
  EXPECT_EQ(StalenessPercentile(StalenessStatistics(), 0.99), 0);
}

TEST(Staleness, TakesTheLargestClock) {
  StalenessStatistics a;
  a.set_clocks_max(3);
  StalenessStatistics b;
  b.set_clocks_max(2);
  MergeStaleness(a, &b);
  EXPECT_EQ(b.clocks_max(), 3);
}

TEST(Staleness, GarbageNeitherOverflowsNorGrows) {
  StalenessStatistics garbage;
  for (int i = 0; i < 100; ++i) garbage.add_version_counts(std::numeric_limits<int64_t>::max());
  garbage.set_version_counts(0, -5);
  StalenessStatistics merged;
  MergeStaleness(garbage, &merged);
  EXPECT_EQ(merged.version_counts_size(), kStalenessBuckets);
  EXPECT_EQ(merged.version_counts(0), 0);
  EXPECT_GE(merged.version_counts(1), 0);
}

}  // namespace
}  // namespace lagrange

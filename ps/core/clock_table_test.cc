#include "ps/core/clock_table.h"

#include <gtest/gtest.h>

namespace lagrange {
namespace {

TEST(ClockTable, IsEmptyAtFirst) {
  const ClockTable table;
  EXPECT_EQ(table.Min(), std::nullopt);
  EXPECT_EQ(table.largest_clock(), 0);
}

TEST(ClockTable, AJoinerEntersAtTheLargestClockSeen) {
  ClockTable table;
  EXPECT_EQ(table.Join(1, 1, 0, 0), 0);
  table.Observe(1, 7);
  EXPECT_EQ(table.Join(2, 1, 1, 0), 7);
  EXPECT_EQ(table.Min(), 7);
}

TEST(ClockTable, AJoinerEntersAtTheLargestClockOfOnesWhoLeft) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  table.Observe(1, 7);
  table.Evict(1, 2);
  EXPECT_EQ(table.Join(2, 1, 0, 0), 7);
}

TEST(ClockTable, AJoinerEntersAtTheFloorIfThatIsGreater) {
  ClockTable table;
  EXPECT_EQ(table.Join(1, 1, 0, 4), 4);
  EXPECT_EQ(table.Join(2, 1, 0, 0), 4);
}

TEST(ClockTable, ARepeatedJoinIsAnsweredAsTheFirst) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  table.Observe(1, 3);
  EXPECT_EQ(table.Join(2, 1, 1, 0), 3);
  table.Observe(2, 9);
  EXPECT_EQ(table.Join(2, 1, 1, 0), 3);
  EXPECT_EQ(table.Find(2)->clock, 9);
}

TEST(ClockTable, ClocksNeverFall) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  table.Observe(1, 5);
  table.Observe(1, 3);
  EXPECT_EQ(table.Find(1)->clock, 5);
}

TEST(ClockTable, MinIsTheSmallestOfThoseInTheTable) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  table.Join(2, 1, 1, 0);
  table.Join(3, 1, 2, 0);
  table.Observe(1, 5);
  table.Observe(2, 2);
  table.Observe(3, 4);
  EXPECT_EQ(table.Min(), 2);
  table.Park(2, 2);
  EXPECT_EQ(table.Min(), 4);
  table.Evict(3, 2);
  EXPECT_EQ(table.Min(), 5);
}

TEST(ClockTable, AParkedOneComesBackWithAHigherSequence) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  table.Join(2, 1, 0, 0);
  table.Park(1, 2);
  EXPECT_EQ(table.Find(1), nullptr);
  table.Observe(2, 6);
  EXPECT_EQ(table.Join(1, 3, 0, 0), 6);
  EXPECT_NE(table.Find(1), nullptr);
}

TEST(ClockTable, AnOlderChangeIsIgnored) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  EXPECT_TRUE(table.Park(1, 2));
  EXPECT_EQ(table.Join(1, 1, 0, 0), std::nullopt);
  EXPECT_EQ(table.Find(1), nullptr);
  EXPECT_EQ(table.Join(1, 4, 0, 0), 0);
  EXPECT_FALSE(table.Park(1, 3));
  EXPECT_NE(table.Find(1), nullptr);
}

TEST(ClockTable, AParkThatOvertakesItsJoinHolds) {
  ClockTable table;
  table.Park(1, 2);
  EXPECT_EQ(table.Join(1, 1, 0, 0), std::nullopt);
}

TEST(ClockTable, AnEvictedOneNeverComesBack) {
  ClockTable table;
  table.Join(1, 1, 0, 0);
  EXPECT_TRUE(table.Evict(1, 2));
  EXPECT_EQ(table.Join(1, 1, 0, 0), std::nullopt);
  EXPECT_EQ(table.Join(1, 3, 0, 0), std::nullopt);
  EXPECT_FALSE(table.Evict(1, 4));
}

TEST(ClockTable, AnEvictionThatOvertakesTheJoinHolds) {
  ClockTable table;
  EXPECT_TRUE(table.Evict(8, 2));
  EXPECT_EQ(table.Join(8, 1, 0, 0), std::nullopt);
}

TEST(ClockTable, ForgottenEvictionsStillHold) {
  ClockTable table;
  table.Join(3, 1, 0, 0);
  for (uint64_t incarnation = 10; incarnation < 10 + 2 * ClockTable::kMaxEvicted; ++incarnation) {
    table.Evict(incarnation, 1);
  }
  EXPECT_EQ(table.Join(10, 2, 0, 0), std::nullopt);
  EXPECT_NE(table.Find(3), nullptr);
  EXPECT_EQ(table.Join(10 + 2 * ClockTable::kMaxEvicted, 1, 0, 0), 0);
}

TEST(ClockTable, IsBounded) {
  ClockTable table;
  for (uint64_t incarnation = 1; incarnation <= ClockTable::kMaxMembers; ++incarnation) {
    ASSERT_TRUE(table.Join(incarnation, 1, 0, 0).has_value());
  }
  EXPECT_EQ(table.Join(ClockTable::kMaxMembers + 1, 1, 0, 0), std::nullopt);
}

}  // namespace
}  // namespace lagrange

#include "chief/core/retirement.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

RetireLeases::Lease MakeLease(int64_t lease) {
  RetireLeases::Lease message;
  message.set_lease(lease);
  return message;
}

TEST(Retirement, ALeaseIsRetiredWhenEveryPsHasAnswered) {
  Retirement retirement(2);
  retirement.Add(MakeLease(4));
  RetireLeases first;
  RetireLeases second;
  ASSERT_TRUE(retirement.NextFor(0, &first));
  ASSERT_TRUE(retirement.NextFor(1, &second));
  EXPECT_THAT(retirement.Answered(1, second), IsEmpty());
  EXPECT_THAT(retirement.Answered(0, first), ElementsAre(Pair(0, 4)));
}

TEST(Retirement, APsHasOneCommandAtATimeAndTheRestIsBundled) {
  Retirement retirement(1);
  retirement.Add(MakeLease(1));
  RetireLeases command;
  ASSERT_TRUE(retirement.NextFor(0, &command));
  retirement.Add(MakeLease(2));
  retirement.Add(MakeLease(3));
  RetireLeases next;
  EXPECT_FALSE(retirement.NextFor(0, &next));
  EXPECT_THAT(retirement.Answered(0, command), ElementsAre(Pair(0, 1)));
  ASSERT_TRUE(retirement.NextFor(0, &next));
  EXPECT_EQ(next.leases_size(), 2);
}

}  // namespace
}  // namespace lagrange

#include "common/clock.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

TEST(RealClock, NeverGoesBack) {
  const RealClock clock;
  absl::Time last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Time now = clock.Now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(RealClock, TellsTheTimeOfDay) {
  const absl::Time before = absl::Now();
  const absl::Time now = RealClock().Now();
  EXPECT_GE(now, before);
  EXPECT_LT(now - before, absl::Hours(1));
}

}  // namespace
}  // namespace lagrange

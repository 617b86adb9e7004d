#include "worker/rate_meter.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

TEST(RateMeter, NothingIsZero) {
  RateMeter meter;
  EXPECT_EQ(meter.PerSecond(kNow), 0);
}

TEST(RateMeter, MeasuresOverTheWindow) {
  RateMeter meter;
  for (int i = 0; i < 100; ++i) meter.Add(10, kNow + i * absl::Milliseconds(100));
  // The last 5 s hold 50 events of 10.
  EXPECT_DOUBLE_EQ(meter.PerSecond(kNow + absl::Milliseconds(9900)), 100);
  EXPECT_EQ(meter.total(), 1000);
}

TEST(RateMeter, ForgetsAnIdleWorkersSpeed) {
  RateMeter meter;
  meter.Add(10, kNow);
  EXPECT_EQ(meter.PerSecond(kNow + absl::Seconds(6)), 0);
}

}  // namespace
}  // namespace lagrange

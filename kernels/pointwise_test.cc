#include "kernels/pointwise.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace lagrange::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AddBias, AddsTheBiasToEachRow) {
  for (const int64_t rows : TestSizes()) {
    for (const int64_t cols : TestSizes()) {
      const std::vector<float> bias = TestValues(cols, 1), before = TestValues(rows * cols, 2);
      std::vector<float> x = before;
      ASSERT_TRUE(AddBias(rows, cols, bias.data(), x.data()).ok());
      std::vector<double> want(rows * cols);
      for (int64_t i = 0; i < rows * cols; ++i) want[i] = static_cast<double>(before[i]) + bias[i % cols];
      ExpectNear(x, want, 1e-7);
    }
  }
}

TEST(Relu, KeepsPositivesAndZeroesNegatives) {
  for (const int64_t n : TestSizes()) {
    const std::vector<float> x = TestValues(n, 1);
    std::vector<float> y(n, kNan);
    ASSERT_TRUE(Relu(n, x.data(), y.data()).ok());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[i], x[i] > 0 ? x[i] : 0.0f);
  }
}

TEST(Relu, InPlaceGivesTheSame) {
  std::vector<float> x = {-1, 2, -3, 4, 0};
  ASSERT_TRUE(Relu(5, x.data(), x.data()).ok());
  EXPECT_EQ(x, (std::vector<float>{0, 2, 0, 4, 0}));
}

TEST(Relu, PassesNanAndInfinityOn) {
  const std::vector<float> x = {kNan, kInfinity, -kInfinity};
  std::vector<float> y(3);
  ASSERT_TRUE(Relu(3, x.data(), y.data()).ok());
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0.0f);
}

TEST(ReluGradient, PassesGradientsOfPositivesOnly) {
  for (const int64_t n : TestSizes()) {
    std::vector<float> y = TestValues(n, 1);
    for (float& value : y) value = value > 0 ? value : 0.0f;
    const std::vector<float> dy = TestValues(n, 2);
    std::vector<float> dx(n, kNan);
    ASSERT_TRUE(ReluGradient(n, y.data(), dy.data(), dx.data()).ok());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(dx[i], y[i] > 0 ? dy[i] : 0.0f);
  }
}

TEST(ReluGradient, InPlaceGivesTheSame) {
  const std::vector<float> y = {0, 2, 0, 4, 0};
  std::vector<float> dy = {1, 2, 3, 4, 5};
  ASSERT_TRUE(ReluGradient(5, y.data(), dy.data(), dy.data()).ok());
  EXPECT_EQ(dy, (std::vector<float>{0, 2, 0, 4, 0}));
}

TEST(ReluGradient, GradientOfNanPasses) {
  const float dy = 3;
  float dx = 0;
  ASSERT_TRUE(ReluGradient(1, &kNan, &dy, &dx).ok());
  EXPECT_EQ(dx, 3.0f);
}

TEST(SumRows, MatchesTheDefinitionInDouble) {
  for (const int64_t rows : TestSizes()) {
    for (const int64_t cols : {0, 1, 31, 32, 33, 63, 64, 65, 128, 257}) {
      const std::vector<float> x = TestValues(rows * cols, 1);
      std::vector<double> want(cols, 0.0);
      for (int64_t i = 0; i < rows * cols; ++i) want[i % cols] += x[i];
      std::vector<float> sums(cols, kNan);
      ASSERT_TRUE(SumRows(rows, cols, x.data(), sums.data()).ok());
      ExpectNear(sums, want, 1e-7);
    }
  }
}

// In float32 the ones would stop counting at 2^24.
TEST(SumRows, LosesNoSmallTermsBesideALargeOne) {
  std::vector<float> x(1001, 1.0f);
  x[0] = 0x1p25f;
  float sum = 0;
  ASSERT_TRUE(SumRows(1001, 1, x.data(), &sum).ok());
  EXPECT_EQ(sum, 0x1p25f + 1000.0f);
}

}  // namespace
}  // namespace lagrange::kernels

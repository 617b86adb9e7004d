#include "kernels/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace lagrange::kernels {
namespace {

struct Expected {
  double loss = 0;
  int64_t correct_count = 0;
  std::vector<double> gradient;
};

// log-sum-exp in long double, by the definition.
Expected Oracle(int64_t rows, int64_t classes, const std::vector<float>& logits, const std::vector<int32_t>& labels) {
  Expected expected;
  for (int64_t row = 0; row < rows; ++row) {
    long double total = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < classes; ++i) {
      total += std::exp(static_cast<long double>(logits[row * classes + i]));
      if (logits[row * classes + i] > logits[row * classes + best]) best = i;
    }
    expected.loss += static_cast<double>(std::log(total) - logits[row * classes + labels[row]]);
    expected.correct_count += best == labels[row];
    for (int64_t i = 0; i < classes; ++i) {
      const long double probability = std::exp(static_cast<long double>(logits[row * classes + i])) / total;
      expected.gradient.push_back(static_cast<double>((probability - (i == labels[row])) / rows));
    }
  }
  return expected;
}

TEST(SoftmaxCrossEntropy, MatchesTheDefinition) {
  for (const int64_t rows : TestSizes()) {
    for (const int64_t classes : {1, 2, 10, 31, 32, 33, 101}) {
      std::vector<float> logits = TestValues(rows * classes, 1);
      for (float& logit : logits) logit *= 20.0f;
      std::vector<int32_t> labels;
      for (int64_t row = 0; row < rows; ++row) labels.push_back(static_cast<int32_t>(row * 7 % classes));
      const Expected want = Oracle(rows, classes, logits, labels);
      CrossEntropySums sums;
      std::vector<float> gradient(logits.size());
      ASSERT_TRUE(SoftmaxCrossEntropy(rows, classes, logits.data(), labels.data(), &sums, gradient.data()).ok());
      EXPECT_NEAR(sums.loss, want.loss, 1e-6 * std::max(1.0, want.loss));
      EXPECT_EQ(sums.correct_count, want.correct_count);
      ExpectNear(gradient, want.gradient, 1e-6);
    }
  }
}

TEST(SoftmaxCrossEntropy, EqualLogitsGiveLogOfTheClasses) {
  const std::vector<float> logits(4, 5.0f);
  const int32_t label = 2;
  CrossEntropySums sums;
  std::vector<float> gradient(4);
  ASSERT_TRUE(SoftmaxCrossEntropy(1, 4, logits.data(), &label, &sums, gradient.data()).ok());
  EXPECT_DOUBLE_EQ(sums.loss, std::log(4.0));
  EXPECT_EQ(gradient, (std::vector<float>{0.25f, 0.25f, -0.75f, 0.25f}));
}

TEST(SoftmaxCrossEntropy, TiesGoToTheLowestClass) {
  const std::vector<float> logits = {1, 3, 3, 1, 3, 3};
  const std::vector<int32_t> labels = {1, 1};
  CrossEntropySums sums;
  ASSERT_TRUE(SoftmaxCrossEntropy(2, 3, logits.data(), labels.data(), &sums, nullptr).ok());
  EXPECT_EQ(sums.correct_count, 2);
}

TEST(SoftmaxCrossEntropy, LargestFiniteLogitsStayFinite) {
  const float huge = std::numeric_limits<float>::max() / 2;
  const std::vector<float> logits = {huge, -huge};
  const int32_t label = 1;
  CrossEntropySums sums;
  std::vector<float> gradient(2);
  ASSERT_TRUE(SoftmaxCrossEntropy(1, 2, logits.data(), &label, &sums, gradient.data()).ok());
  EXPECT_DOUBLE_EQ(sums.loss, static_cast<double>(huge) * 2);
  EXPECT_EQ(gradient, (std::vector<float>{1.0f, -1.0f}));
}

TEST(SoftmaxCrossEntropy, NanAndInfinityGiveNan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int position = 0; position < 3; ++position) {
      std::vector<float> logits = {1, 2, 3};
      logits[position] = bad;
      const int32_t label = 0;
      CrossEntropySums sums;
      std::vector<float> gradient(3);
      ASSERT_TRUE(SoftmaxCrossEntropy(1, 3, logits.data(), &label, &sums, gradient.data()).ok());
      EXPECT_TRUE(std::isnan(sums.loss));
      EXPECT_TRUE(std::isnan(gradient[label]));
    }
  }
}

TEST(SoftmaxCrossEntropy, LossIsTheSameWithoutAGradient) {
  const std::vector<float> logits = TestValues(33 * 10, 4);
  const std::vector<int32_t> labels(33, 3);
  CrossEntropySums with, without;
  std::vector<float> gradient(logits.size());
  ASSERT_TRUE(SoftmaxCrossEntropy(33, 10, logits.data(), labels.data(), &with, gradient.data()).ok());
  ASSERT_TRUE(SoftmaxCrossEntropy(33, 10, logits.data(), labels.data(), &without, nullptr).ok());
  EXPECT_EQ(with.loss, without.loss);
  EXPECT_EQ(with.correct_count, without.correct_count);
}

TEST(SoftmaxCrossEntropy, GradientMayOverwriteTheLogits) {
  std::vector<float> logits = TestValues(5 * 7, 5);
  const std::vector<int32_t> labels(5, 6);
  CrossEntropySums sums;
  std::vector<float> gradient(logits.size());
  ASSERT_TRUE(SoftmaxCrossEntropy(5, 7, logits.data(), labels.data(), &sums, gradient.data()).ok());
  ASSERT_TRUE(SoftmaxCrossEntropy(5, 7, logits.data(), labels.data(), &sums, logits.data()).ok());
  EXPECT_EQ(logits, gradient);
}

}  // namespace
}  // namespace lagrange::kernels

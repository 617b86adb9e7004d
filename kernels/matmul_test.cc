#include "kernels/matmul.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace lagrange::kernels {
namespace {

MatMulOptions Sizes(int64_t rows, int64_t cols, int64_t depth) {
  MatMulOptions options;
  options.rows = rows;
  options.cols = cols;
  options.depth = depth;
  return options;
}

// The definition, in double; c is what the result is added to.
std::vector<double> Oracle(const MatMulOptions& options, const std::vector<float>& a, const std::vector<float>& b,
                           const std::vector<float>& c) {
  std::vector<double> result(options.rows * options.cols);
  for (int64_t i = 0; i < options.rows; ++i) {
    for (int64_t j = 0; j < options.cols; ++j) {
      double sum = options.accumulate == Accumulate::kYes ? c[i * options.cols + j] : 0.0;
      for (int64_t k = 0; k < options.depth; ++k) {
        const double x = options.transpose_a == Transpose::kYes ? a[k * options.rows + i] : a[i * options.depth + k];
        const double y = options.transpose_b == Transpose::kYes ? b[j * options.depth + k] : b[k * options.cols + j];
        sum += x * y;
      }
      result[i * options.cols + j] = sum;
    }
  }
  return result;
}

void ExpectMatchesOracle(const MatMulOptions& options) {
  SCOPED_TRACE(testing::Message() << options.rows << " x " << options.cols << " x " << options.depth);
  const std::vector<float> a = TestValues(options.rows * options.depth, 1);
  const std::vector<float> b = TestValues(options.depth * options.cols, 2);
  const std::vector<float> before = TestValues(options.rows * options.cols, 3);
  std::vector<float> c = before;
  ASSERT_TRUE(MatMul(options, a.data(), b.data(), c.data()).ok());
  ExpectNear(c, Oracle(options, a, b, before), 2e-5);
}

class MatMulLayouts : public testing::TestWithParam<std::tuple<Transpose, Transpose, Accumulate>> {};

TEST_P(MatMulLayouts, MatchesTheDefinitionInDouble) {
  for (const int64_t rows : TestSizes()) {
    for (const int64_t cols : TestSizes()) {
      for (const int64_t depth : TestSizes()) {
        MatMulOptions options = Sizes(rows, cols, depth);
        std::tie(options.transpose_a, options.transpose_b, options.accumulate) = GetParam();
        ExpectMatchesOracle(options);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatMulLayouts,
                         testing::Combine(testing::Values(Transpose::kNo, Transpose::kYes),
                                          testing::Values(Transpose::kNo, Transpose::kYes),
                                          testing::Values(Accumulate::kNo, Accumulate::kYes)));

TEST(MatMul, KnownProduct) {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<float> b = {7, 8, 9, 10, 11, 12};
  std::vector<float> c(4);
  ASSERT_TRUE(MatMul(Sizes(2, 2, 3), a.data(), b.data(), c.data()).ok());
  EXPECT_EQ(c, (std::vector<float>{58, 64, 139, 154}));
}

TEST(MatMul, DoesNotReadTheResultUnlessItAccumulates) {
  for (const int64_t depth : {0, 1, 33}) {
    const std::vector<float> a(5 * depth, 1.0f), b(depth * 3, 2.0f);
    std::vector<float> c(5 * 3, std::numeric_limits<float>::quiet_NaN());
    ASSERT_TRUE(MatMul(Sizes(5, 3, depth), a.data(), b.data(), c.data()).ok());
    EXPECT_EQ(c, std::vector<float>(15, 2.0f * depth));
  }
}

TEST(MatMul, EmptyProductTouchesNothing) {
  EXPECT_TRUE(MatMul(Sizes(0, 4, 4), nullptr, nullptr, nullptr).ok());
  EXPECT_TRUE(MatMul(Sizes(4, 0, 4), nullptr, nullptr, nullptr).ok());
}

// Bits may depend on sizes and threads, never on where the memory lies.
TEST(MatMul, SameBitsAtEveryAlignment) {
  const MatMulOptions options = Sizes(64, 37, 129);
  const std::vector<float> a = TestValues(64 * 129, 1), b = TestValues(129 * 37, 2);
  std::vector<float> first(64 * 37);
  ASSERT_TRUE(MatMul(options, a.data(), b.data(), first.data()).ok());
  for (int shift = 1; shift < 16; ++shift) {
    std::vector<float> shifted_a(a.size() + shift), shifted_b(b.size() + shift), c(first.size() + shift);
    std::copy(a.begin(), a.end(), shifted_a.begin() + shift);
    std::copy(b.begin(), b.end(), shifted_b.begin() + shift);
    ASSERT_TRUE(MatMul(options, shifted_a.data() + shift, shifted_b.data() + shift, c.data() + shift).ok());
    EXPECT_EQ(std::vector<float>(c.begin() + shift, c.end()), first) << "shift " << shift;
  }
}

TEST(MatMul, TwoThreadsMatchTheDefinition) {
  SetComputeThreads(2);
  ExpectMatchesOracle(Sizes(128, 256, 784));
  SetComputeThreads(1);
}

}  // namespace
}  // namespace lagrange::kernels

// What the kernels' tests share: sizes where blocked loops go wrong, reproducible inputs, a comparison that knows how
// far float32 may be off.

#ifndef KERNELS_KERNEL_TESTING_H_
#define KERNELS_KERNEL_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/prng.h"
#include "gtest/gtest.h"

namespace lagrange::kernels {

// Nothing, one, around a vector block, one past a tile, primes.
inline const std::vector<int64_t>& TestSizes() {
  static const auto* sizes = new std::vector<int64_t>{0, 1, 7, 31, 32, 33, 65, 101};
  return *sizes;
}

// Uniform in [-1, 1), the same for the same seed.
inline std::vector<float> TestValues(int64_t n, uint64_t seed) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = 2.0f * RandomUnit(seed, i) - 1.0f;
  return values;
}

// Elementwise |got - want| <= tolerance * max(1, |want|). NaN is never near.
inline void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
  }
}

}  // namespace lagrange::kernels

#endif  // KERNELS_KERNEL_TESTING_H_

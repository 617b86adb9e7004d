// The update rules against oracles in double, at sizes around vector widths; in place and out of place bit for bit.

#include "kernels/update_rules.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/prng.h"

namespace lagrange::kernels {
namespace {

using Floats = std::vector<float>;

const std::vector<int64_t> kSizes = {0, 1, 31, 32, 33, 127, 1024, 1031, 4099};

Floats Random(int64_t n, uint64_t key) {
  Floats values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = RandomNormal(key, i);
  return values;
}

Floats RandomPositive(int64_t n, uint64_t key) {
  Floats values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = RandomUnit(key, i);
  return values;
}

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Parameters and slots of one call, and a rule to run on them.
struct State {
  Floats parameters;
  Floats first;
  Floats second;
};
using Rule = void (*)(int64_t n, const float* gradient, const State& in, State* out, int64_t begin);

void Sgd(int64_t n, const float* g, const State& in, State* out, int64_t begin) {
  SgdUpdate(n, 0.1f, g + begin, in.parameters.data() + begin, out->parameters.data() + begin);
}
void Momentum(int64_t n, const float* g, const State& in, State* out, int64_t begin) {
  MomentumUpdate(n, 0.1f, 0.9f, false, g + begin, in.parameters.data() + begin, out->parameters.data() + begin,
                 in.first.data() + begin, out->first.data() + begin);
}
void Nesterov(int64_t n, const float* g, const State& in, State* out, int64_t begin) {
  MomentumUpdate(n, 0.1f, 0.9f, true, g + begin, in.parameters.data() + begin, out->parameters.data() + begin,
                 in.first.data() + begin, out->first.data() + begin);
}
void Adam(int64_t n, const float* g, const State& in, State* out, int64_t begin) {
  AdamUpdate(n, MakeAdamStep(0.001f, 0.9f, 0.999f, 1e-7f, 3), g + begin, in.parameters.data() + begin,
             out->parameters.data() + begin, in.first.data() + begin, out->first.data() + begin,
             in.second.data() + begin, out->second.data() + begin);
}

class EveryRule : public testing::TestWithParam<Rule> {};

TEST_P(EveryRule, GivesTheSameBitsInPlaceAndOutOfPlace) {
  for (const int64_t n : kSizes) {
    const Floats gradient = Random(n, 1);
    const State in{Random(n, 2), Random(n, 3), RandomPositive(n, 4)};
    State apart{Floats(n), Floats(n), Floats(n)};
    State in_place = in;
    GetParam()(n, gradient.data(), in, &apart, 0);
    GetParam()(n, gradient.data(), in_place, &in_place, 0);
    EXPECT_TRUE(SameBits(apart.parameters, in_place.parameters)) << n;
    EXPECT_TRUE(GetParam() == Sgd || SameBits(apart.first, in_place.first)) << n;
    EXPECT_TRUE(GetParam() != Adam || SameBits(apart.second, in_place.second)) << n;
  }
}

TEST_P(EveryRule, GivesTheSameBitsInOneRangeAndInTwo) {
  for (const int64_t n : kSizes) {
    const Floats gradient = Random(n, 1);
    const State in{Random(n, 2), Random(n, 3), RandomPositive(n, 4)};
    State whole{Floats(n), Floats(n), Floats(n)};
    GetParam()(n, gradient.data(), in, &whole, 0);
    for (const int64_t cut : {n / 3, n / 2, n - n / 7}) {
      State parts{Floats(n), Floats(n), Floats(n)};
      GetParam()(cut, gradient.data(), in, &parts, 0);
      GetParam()(n - cut, gradient.data(), in, &parts, cut);
      EXPECT_TRUE(SameBits(whole.parameters, parts.parameters)) << n << " cut at " << cut;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(UpdateRules, EveryRule, testing::Values(Sgd, Momentum, Nesterov, Adam));

TEST(UpdateRules, SgdIsItsFormulaInDouble) {
  for (const int64_t n : kSizes) {
    const Floats gradient = Random(n, 1);
    const Floats in = Random(n, 2);
    Floats out(n, -9.0f);
    SgdUpdate(n, 0.1f, gradient.data(), in.data(), out.data());
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(out[i], in[i] - static_cast<double>(0.1f) * gradient[i], 1e-6) << n << ", " << i;
    }
  }
}

TEST(UpdateRules, MomentumIsItsFormulaInDouble) {
  for (const bool nesterov : {false, true}) {
    for (const int64_t n : kSizes) {
      const Floats gradient = Random(n, 1);
      const Floats in = Random(n, 2);
      const Floats velocity = Random(n, 3);
      Floats out(n, -9.0f);
      Floats velocity_out(n, -9.0f);
      MomentumUpdate(n, 0.1f, 0.9f, nesterov, gradient.data(), in.data(), out.data(), velocity.data(),
                     velocity_out.data());
      for (int64_t i = 0; i < n; ++i) {
        const double v = static_cast<double>(0.9f) * velocity[i] + gradient[i];
        const double direction = nesterov ? gradient[i] + static_cast<double>(0.9f) * v : v;
        EXPECT_NEAR(velocity_out[i], v, 2e-6);
        EXPECT_NEAR(out[i], in[i] - static_cast<double>(0.1f) * direction, 2e-6);
      }
    }
  }
}

TEST(UpdateRules, AdamIsAlgorithmOneInDouble) {
  const double beta1 = 0.9f;
  const double beta2 = 0.999f;
  const double epsilon = 1e-7f;
  for (const int64_t n : kSizes) {
    Floats parameters = Random(n, 2);
    Floats m(n, 0.0f);
    Floats v(n, 0.0f);
    std::vector<double> expected(parameters.begin(), parameters.end());
    std::vector<double> exact_m(n, 0.0);
    std::vector<double> exact_v(n, 0.0);
    for (uint64_t t = 1; t <= 5; ++t) {
      const Floats gradient = Random(n, 10 + t);
      AdamUpdate(n, MakeAdamStep(0.01f, 0.9f, 0.999f, 1e-7f, t), gradient.data(), parameters.data(), parameters.data(),
                 m.data(), m.data(), v.data(), v.data());
      for (int64_t i = 0; i < n; ++i) {
        const double g = gradient[i];
        exact_m[i] = beta1 * exact_m[i] + (1 - beta1) * g;
        exact_v[i] = beta2 * exact_v[i] + (1 - beta2) * g * g;
        const double m_hat = exact_m[i] / (1 - std::pow(beta1, t));
        const double v_hat = exact_v[i] / (1 - std::pow(beta2, t));
        expected[i] -= static_cast<double>(0.01f) * m_hat / (std::sqrt(v_hat) + epsilon);
      }
    }
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(parameters[i], expected[i], 5e-6) << n << ", " << i;
  }
}

// FAILURES B38: w = 0, g = 1, learning rate 1, epsilon 0: the first step is -1 whatever the betas are.
TEST(UpdateRules, AdamsFirstStepIsTheLearningRate) {
  for (const float beta : {0.0f, 0.5f, 0.9f, 0.999f}) {
    const float gradient = 1.0f;
    float w = 0.0f;
    float m = 0.0f;
    float v = 0.0f;
    AdamUpdate(1, MakeAdamStep(1.0f, beta, beta, 0.0f, 1), &gradient, &w, &w, &m, &m, &v, &v);
    EXPECT_NEAR(w, -1.0f, 1e-5f) << beta;
  }
}

TEST(UpdateRules, AdamWithoutEpsilonLeavesAnElementWithoutGradient) {
  const float gradient = 0.0f;
  float w = 3.0f;
  float m = 0.0f;
  float v = 0.0f;
  AdamUpdate(1, MakeAdamStep(1.0f, 0.9f, 0.999f, 0.0f, 1), &gradient, &w, &w, &m, &m, &v, &v);
  EXPECT_EQ(w, 3.0f);
}

TEST(UpdateRules, AdamsCorrectionFadesWithTheSteps) {
  const AdamStep step = MakeAdamStep(0.5f, 0.9f, 0.999f, 1e-3f, uint64_t{1} << 40);
  EXPECT_FLOAT_EQ(step.step_size, 0.5f);
  EXPECT_FLOAT_EQ(step.epsilon_hat, 1e-3f);
}

TEST(UpdateRules, FirstNonFiniteNamesTheFirstOfEachKind) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t n : kSizes) {
    Floats x = Random(n, 1);
    EXPECT_EQ(FirstNonFinite(n, x.data()), -1) << n;
    for (const float bad : {nan, -nan, infinity, -infinity}) {
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        if (at < 0 || at >= n) continue;
        Floats y = x;
        y[n - 1] = infinity;
        y[at] = bad;
        EXPECT_EQ(FirstNonFinite(n, y.data()), at) << n;
      }
    }
  }
}

TEST(UpdateRules, TheLargestFloatAndDenormalsAreFinite) {
  const Floats x = {std::numeric_limits<float>::max(), std::numeric_limits<float>::lowest(),
                    std::numeric_limits<float>::denorm_min(), 0.0f, -0.0f};
  EXPECT_EQ(FirstNonFinite(x.size(), x.data()), -1);
}

TEST(UpdateRules, ScaledAddIsItsFormulaInDouble) {
  for (const int64_t n : kSizes) {
    const Floats x = Random(n, 1);
    const Floats before = Random(n, 2);
    Floats sum = before;
    ScaledAdd(n, 0.3f, x.data(), sum.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(sum[i], before[i] + static_cast<double>(0.3f) * x[i], 1e-6);
  }
}

TEST(UpdateRules, BlendIsItsFormulaInDouble) {
  for (const int64_t n : kSizes) {
    const Floats x = Random(n, 1);
    const Floats before = Random(n, 2);
    Floats mean = before;
    Blend(n, 0.75f, 0.25f, x.data(), mean.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(mean[i], 0.75 * before[i] + 0.25 * x[i], 1e-6);
  }
}

TEST(UpdateRules, BlendOfTheLargestFloatsStaysFinite) {
  const float x = std::numeric_limits<float>::max();
  float mean = x;
  Blend(1, 0.5f, 0.5f, &x, &mean);
  EXPECT_EQ(mean, x);
}

}  // namespace
}  // namespace lagrange::kernels

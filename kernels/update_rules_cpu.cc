// Plain loops that the compiler vectorises; every rule is bound by memory. "ivdep" holds because out is exactly in or
// disjoint from it. Contraction to fused multiply-adds is off (BUILD), so that a range's tail has the bits of its body.

#include <cmath>
#include <cstring>

#include "kernels/update_rules.h"

namespace lagrange::kernels {

namespace {

// Elements looked at before FirstNonFinite asks whether one was found: long enough to vectorise, short enough to stop.
constexpr int64_t kScanBlock = 1024;

bool IsNonFinite(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return (bits & 0x7f800000u) == 0x7f800000u;
}

}  // namespace

void SgdUpdate(int64_t n, float learning_rate, const float* gradient, const float* in, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] - learning_rate * gradient[i];
}

void MomentumUpdate(int64_t n, float learning_rate, float momentum, bool nesterov, const float* gradient,
                    const float* in, float* out, const float* velocity_in, float* velocity_out) {
  if (nesterov) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      const float velocity = momentum * velocity_in[i] + gradient[i];
      velocity_out[i] = velocity;
      out[i] = in[i] - learning_rate * (gradient[i] + momentum * velocity);
    }
    return;
  }
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float velocity = momentum * velocity_in[i] + gradient[i];
    velocity_out[i] = velocity;
    out[i] = in[i] - learning_rate * velocity;
  }
}

AdamStep MakeAdamStep(float learning_rate, float beta1, float beta2, float epsilon, uint64_t t) {
  const double steps = static_cast<double>(t);
  const double correction = std::sqrt(1.0 - std::pow(static_cast<double>(beta2), steps));
  AdamStep step;
  step.step_size = static_cast<float>(learning_rate * correction / (1.0 - std::pow(static_cast<double>(beta1), steps)));
  step.epsilon_hat = static_cast<float>(epsilon * correction);
  step.beta1 = beta1;
  step.beta2 = beta2;
  return step;
}

void AdamUpdate(int64_t n, const AdamStep& step, const float* gradient, const float* in, float* out, const float* m_in,
                float* m_out, const float* v_in, float* v_out) {
  const float keep1 = step.beta1;
  const float keep2 = step.beta2;
  const float take1 = 1.0f - keep1;
  const float take2 = 1.0f - keep2;
  const float step_size = step.step_size;
  const float epsilon_hat = step.epsilon_hat;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float g = gradient[i];
    const float m = keep1 * m_in[i] + take1 * g;
    const float v = keep2 * v_in[i] + take2 * (g * g);
    const float denominator = std::sqrt(v) + epsilon_hat;
    // Without epsilon an element that has had no gradient yet would be 0 / 0.
    const float move = denominator > 0.0f ? m / denominator : 0.0f;
    m_out[i] = m;
    v_out[i] = v;
    out[i] = in[i] - step_size * move;
  }
}

int64_t FirstNonFinite(int64_t n, const float* x) {
  for (int64_t begin = 0; begin < n; begin += kScanBlock) {
    const int64_t end = n - begin < kScanBlock ? n : begin + kScanBlock;
    int found = 0;
    for (int64_t i = begin; i < end; ++i) found |= IsNonFinite(x[i]) ? 1 : 0;
    if (found == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (IsNonFinite(x[i])) return i;
    }
  }
  return -1;
}

void ScaledAdd(int64_t n, float scale, const float* x, float* sum) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] += scale * x[i];
}

void Blend(int64_t n, float keep, float scale, const float* x, float* mean) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) mean[i] = keep * mean[i] + scale * x[i];
}

}  // namespace lagrange::kernels

// The optimizers' update rules on spans: shared by the ps on the CPU and, later, by a GPU worker.
//
// Every rule reads parameters from `in` and writes them to `out`, each of n floats; out may be exactly in (in place) or
// disjoint from it, nothing between: a ps that is still sending the old version writes the new one elsewhere. Slots
// follow the same rule pairwise. gradient [n] never aliases out. Element-wise, so splitting a range and updating its
// parts gives the same bits. Accumulation in float32. Thread-safe: pure functions; never allocates, never fails.

#ifndef KERNELS_UPDATE_RULES_H_
#define KERNELS_UPDATE_RULES_H_

#include <cstdint>

namespace lagrange::kernels {

// out = in - learning_rate * gradient. Bytes: 12 n; bound by memory.
void SgdUpdate(int64_t n, float learning_rate, const float* gradient, const float* in, float* out);

// v' = momentum * v + g; out = in - learning_rate * v', or with nesterov in - learning_rate * (g + momentum * v').
void MomentumUpdate(int64_t n, float learning_rate, float momentum, bool nesterov, const float* gradient,
                    const float* in, float* out, const float* velocity_in, float* velocity_out);

// Kingma and Ba, ICLR 2015, algorithm 1, in the form of its section 2's last paragraph: step_size =
// learning_rate * sqrt(1 - beta2^t) / (1 - beta1^t) and epsilon_hat = epsilon * sqrt(1 - beta2^t) are the caller's, so
// that out = in - step_size * m' / (sqrt(v') + epsilon_hat) is algorithm 1 exactly. Where the denominator is 0 (no
// gradient yet and no epsilon) the element doesn't move.
struct AdamStep {
  float step_size;
  float epsilon_hat;
  float beta1;
  float beta2;
};
// t counts from 1; computed in double.
AdamStep MakeAdamStep(float learning_rate, float beta1, float beta2, float epsilon, uint64_t t);
void AdamUpdate(int64_t n, const AdamStep& step, const float* gradient, const float* in, float* out, const float* m_in,
                float* m_out, const float* v_in, float* v_out);

// Index of the first element that is NaN or infinite, or -1.
int64_t FirstNonFinite(int64_t n, const float* x);

// sum += scale * x.
void ScaledAdd(int64_t n, float scale, const float* x, float* sum);

// mean = keep * mean + scale * x; x doesn't alias mean. With keep + scale = 1 it can't overflow where a sum would.
void Blend(int64_t n, float keep, float scale, const float* x, float* mean);

}  // namespace lagrange::kernels

#endif  // KERNELS_UPDATE_RULES_H_

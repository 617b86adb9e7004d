// Counter-based random numbers: the value at (seed, stream, index) needs no state and no order, so that initial values
// and shuffles are the same whoever computes them, on however many processes.
//
// The mixing function is SplitMix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014, figure 16, variant 13 of Stafford). Thread-safe: pure functions. Never blocks, never allocates.

#ifndef COMMON_PRNG_H_
#define COMMON_PRNG_H_

#include <cmath>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace lagrange {

inline uint64_t MixBits(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x;
}

// Joins a further number to a key. Not commutative.
inline uint64_t CombineKeys(uint64_t key, uint64_t next) {
  return MixBits(key + 0x9e3779b97f4a7c15ull + MixBits(next + 0x9e3779b97f4a7c15ull));
}

// FNV-1a, then mixed: the key of a name.
inline uint64_t KeyOfName(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ull;
  }
  return MixBits(hash);
}

// 64 random bits of a key at an index.
inline uint64_t RandomBits(uint64_t key, uint64_t index) { return MixBits(key + index * 0x9e3779b97f4a7c15ull); }

// Uniform in [0, 1), a multiple of 2^-24 so that a float holds it exactly.
inline float RandomUnit(uint64_t key, uint64_t index) {
  return static_cast<float>(RandomBits(key, index) >> 40) * 0x1p-24f;
}

// Standard normal by Box and Muller's transform (Annals of Mathematical Statistics 29, 1958), one value to an index.
inline float RandomNormal(uint64_t key, uint64_t index) {
  const double u = (static_cast<double>(RandomBits(key, 2 * index) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(RandomBits(key, 2 * index + 1) >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925286766559 * v));
}

}  // namespace lagrange

#endif  // COMMON_PRNG_H_

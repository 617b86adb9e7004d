// What can go wrong in a simulated run, how likely, and how often it did.
//
// Plain values; caller synchronizes.

#ifndef TESTS_SIMULATION_FAULTS_H_
#define TESTS_SIMULATION_FAULTS_H_

#include <array>
#include <cstdint>

#include "common/prng.h"

namespace lagrange::simulation {

enum class Fault {
  // A message of the data path never arrives.
  kLoss,
  // It arrives late by up to kLongDelay.
  kDelay,
  // It arrives twice.
  kRepetition,
  // A call to the chief or to a ps never arrives; the caller learns of it by its deadline.
  kCallLost,
  // The call is carried out, its answer is lost.
  kAnswerLost,
  // A push stops between two shards' parts; the rest comes with a resend.
  kPushCut,
  // A worker dies in whatever it is doing; another process takes its place later.
  kWorkerCrash,
  // A worker stands still for longer than its lease.
  kWorkerPause,
  // A worker is asked to leave (SIGTERM); another process takes its place later.
  kWorkerStop,
  // The chief dies and is started again on what it had committed.
  kChiefCrash,
  kCount,
};

inline constexpr int kFaultCount = static_cast<int>(Fault::kCount);

inline constexpr std::array<const char*, kFaultCount> kFaultNames = {
    "loss",     "delay",        "repetition",   "call lost",   "answer lost",
    "push cut", "worker crash", "worker pause", "worker stop", "chief crash",
};

using FaultCounts = std::array<int64_t, kFaultCount>;

// A seeded source of chance. Not thread-safe: each run has its own.
class Chance {
 public:
  explicit Chance(uint64_t seed) : key_(MixBits(seed + 1)) {}

  // In [0, 1).
  double Unit() { return static_cast<double>(RandomBits(key_, index_++) >> 11) * 0x1p-53; }
  bool Happens(double probability) { return Unit() < probability; }
  // In [0, count). REQUIRES: count >= 1.
  int64_t Below(int64_t count) { return static_cast<int64_t>(Unit() * static_cast<double>(count)); }
  uint64_t Bits() { return RandomBits(key_, index_++); }

 private:
  const uint64_t key_;
  uint64_t index_ = 0;
};

}  // namespace lagrange::simulation

#endif  // TESTS_SIMULATION_FAULTS_H_

// Counts how stale pushes and pulls were: of the last few epochs one by one, and in total.
//
// Caller synchronizes. Fixed memory: kEpochsKept epochs of 64 buckets.

#ifndef PS_CORE_STALENESS_H_
#define PS_CORE_STALENESS_H_

#include <array>
#include <cstdint>
#include <map>

#include "proto/control_plane.pb.h"

namespace lagrange {

class StalenessTally {
 public:
  // 0, 1, ..., 62, and 63 or more.
  static constexpr int kBuckets = 64;
  // The chief asks for an epoch at its end; the next may have begun by then.
  static constexpr size_t kEpochsKept = 4;

  // One shard's part of a push of the epoch was applied, `versions` after the version that it was computed from.
  void AddVersions(int64_t epoch, int64_t versions);
  // A pull was answered `clocks` ahead of the slowest; the epoch is known when its push comes.
  void AddClocks(int64_t epoch, int64_t clocks);
  void AddClocksOfTotal(int64_t clocks);

  // Adds to the message, which may be empty. Its `pushes` counts parts, as version_counts does.
  void MergeEpochInto(int64_t epoch, StalenessStatistics* statistics) const;
  void MergeTotalInto(StalenessStatistics* statistics) const;

 private:
  struct Counts {
    std::array<int64_t, kBuckets> versions{};
    int64_t version_sum = 0;
    int64_t clocks_max = 0;
    int64_t parts = 0;

    void AddVersions(int64_t staleness);
    void MergeInto(StalenessStatistics* statistics) const;
  };

  // Null for an epoch older than those kept.
  Counts* OfEpoch(int64_t epoch);

  Counts total_;
  std::map<int64_t, Counts> epochs_;
};

}  // namespace lagrange

#endif  // PS_CORE_STALENESS_H_

// Sums over the ps of the staleness that they measured, and what a report or a status says of it.
//
// Thread-safe: pure functions. What comes over the wire is clamped, so that a ps can't make a report absurd or large.

#ifndef PROTO_STALENESS_STATISTICS_H_
#define PROTO_STALENESS_STATISTICS_H_

#include "proto/control_plane.pb.h"

namespace lagrange {

// Buckets of StalenessStatistics.version_counts.
inline constexpr int kStalenessBuckets = 64;

// Adds counts and sums, takes the larger maximum. Buckets beyond the last and negative counts are not counted.
void MergeStaleness(const StalenessStatistics& from, StalenessStatistics* into);

// In versions; 0 when nothing was pushed. The mean is exact, the percentile that of the buckets (63 stands for more).
double MeanStaleness(const StalenessStatistics& staleness);
double StalenessPercentile(const StalenessStatistics& staleness, double fraction);

}  // namespace lagrange

#endif  // PROTO_STALENESS_STATISTICS_H_

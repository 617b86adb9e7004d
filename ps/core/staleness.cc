#include "ps/core/staleness.h"

#include <algorithm>

namespace lagrange {

void StalenessTally::Counts::AddVersions(int64_t staleness) {
  ++versions[std::clamp<int64_t>(staleness, 0, kBuckets - 1)];
  version_sum += staleness;
  ++parts;
}

void StalenessTally::Counts::MergeInto(StalenessStatistics* statistics) const {
  while (statistics->version_counts_size() < kBuckets) statistics->add_version_counts(0);
  for (int i = 0; i < kBuckets; ++i) {
    statistics->set_version_counts(i, statistics->version_counts(i) + versions[i]);
  }
  statistics->set_version_sum(statistics->version_sum() + version_sum);
  statistics->set_clocks_max(std::max(statistics->clocks_max(), clocks_max));
  statistics->set_pushes(statistics->pushes() + parts);
}

StalenessTally::Counts* StalenessTally::OfEpoch(int64_t epoch) {
  const auto found = epochs_.find(epoch);
  if (found != epochs_.end()) return &found->second;
  if (epochs_.size() >= kEpochsKept) {
    if (epoch < epochs_.begin()->first) return nullptr;
    epochs_.erase(epochs_.begin());
  }
  return &epochs_[epoch];
}

void StalenessTally::AddVersions(int64_t epoch, int64_t versions) {
  total_.AddVersions(versions);
  if (Counts* counts = OfEpoch(epoch); counts != nullptr) counts->AddVersions(versions);
}

void StalenessTally::AddClocks(int64_t epoch, int64_t clocks) {
  AddClocksOfTotal(clocks);
  if (Counts* counts = OfEpoch(epoch); counts != nullptr) counts->clocks_max = std::max(counts->clocks_max, clocks);
}

void StalenessTally::AddClocksOfTotal(int64_t clocks) { total_.clocks_max = std::max(total_.clocks_max, clocks); }

void StalenessTally::MergeEpochInto(int64_t epoch, StalenessStatistics* statistics) const {
  const auto found = epochs_.find(epoch);
  (found == epochs_.end() ? Counts() : found->second).MergeInto(statistics);
}

void StalenessTally::MergeTotalInto(StalenessStatistics* statistics) const { total_.MergeInto(statistics); }

}  // namespace lagrange

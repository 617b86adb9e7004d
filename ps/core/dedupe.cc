#include "ps/core/dedupe.h"

#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lagrange {

namespace {

// Epochs are int32 in the job file, records of a lease too, so the product below 2^62 can't overflow a lease number.
constexpr int64_t kMaxEpoch = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxLeasesPerEpoch = std::numeric_limits<int32_t>::max();
// A bitmap of 8 MiB.
constexpr int64_t kMaxBatchesPerLease = int64_t{1} << 26;

absl::Status OutOfRange(absl::string_view what, int64_t low, int64_t end, int64_t got) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected ", low, " to ", end - 1, ", got ", got));
}

bool Within(int64_t value, int64_t low, int64_t end) { return low <= value && value < end; }

}  // namespace

absl::Status LeaseTable::Validate() const {
  if (!Within(leases_per_epoch, 1, kMaxLeasesPerEpoch + 1)) {
    return OutOfRange("leases_per_epoch", 1, kMaxLeasesPerEpoch + 1, leases_per_epoch);
  }
  if (!Within(batches_per_lease, 1, kMaxBatchesPerLease + 1)) {
    return OutOfRange("batches_per_lease", 1, kMaxBatchesPerLease + 1, batches_per_lease);
  }
  return absl::OkStatus();
}

absl::Status LeaseTable::CheckKey(const BatchKey& key) const {
  if (!Within(key.epoch(), 0, kMaxEpoch)) return OutOfRange("epoch of the batch key", 0, kMaxEpoch, key.epoch());
  if (!Within(key.lease(), 0, leases_per_epoch)) {
    return OutOfRange("lease of the batch key", 0, leases_per_epoch, key.lease());
  }
  if (!Within(key.batch(), 0, batches_per_lease)) {
    return OutOfRange("batch of the batch key", 0, batches_per_lease, key.batch());
  }
  return absl::OkStatus();
}

bool Dedupe::IsRetired(int64_t lease_number) const {
  const auto after = retired_.upper_bound(lease_number);
  return after != retired_.begin() && lease_number < std::prev(after)->second;
}

bool Dedupe::Contains(int64_t lease_number, int32_t batch) const {
  if (IsRetired(lease_number)) return true;
  const auto found = open_.find(lease_number);
  if (found == open_.end()) return false;
  const size_t word = batch / 64;
  return word < found->second.size() && ((found->second[word] >> (batch % 64)) & 1) != 0;
}

void Dedupe::Add(int64_t lease_number, int32_t batch) {
  CHECK(Within(batch, 0, batches_per_lease_));
  if (IsRetired(lease_number)) return;
  CHECK(IsOpen(lease_number) || open_count() < kMaxOpenLeases);
  std::vector<uint64_t>& words = open_[lease_number];
  const size_t word = batch / 64;
  if (words.size() <= word) words.resize(word + 1);
  words[word] |= uint64_t{1} << (batch % 64);
}

absl::Status Dedupe::Retire(int64_t lease_number) {
  if (IsRetired(lease_number)) return absl::OkStatus();
  const auto after = retired_.upper_bound(lease_number);
  const bool joins_after = after != retired_.end() && after->first == lease_number + 1;
  const bool joins_before = after != retired_.begin() && std::prev(after)->second == lease_number;
  if (!joins_after && !joins_before && retired_.size() >= kMaxIntervals) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxIntervals, " intervals of retired leases"));
  }
  open_.erase(lease_number);
  const int64_t end = joins_after ? after->second : lease_number + 1;
  if (joins_before) {
    std::prev(after)->second = end;
  } else {
    retired_.emplace(lease_number, end);
  }
  if (joins_after) retired_.erase(after);
  return absl::OkStatus();
}

DedupeRecord Dedupe::ToRecord() const {
  DedupeRecord record;
  for (const auto& [begin, end] : retired_) {
    LeaseInterval* interval = record.add_retired();
    interval->set_begin(begin);
    interval->set_end(end);
  }
  for (const auto& [lease_number, words] : open_) {
    LeaseBitmap* bitmap = record.add_open();
    bitmap->set_lease_number(lease_number);
    for (size_t word = 0; word < words.size(); ++word) {
      for (int bit = 0; bit < 64; ++bit) {
        if (((words[word] >> bit) & 1) != 0) bitmap->add_applied_batches(static_cast<int32_t>(word * 64 + bit));
      }
    }
  }
  return record;
}

absl::StatusOr<Dedupe> Dedupe::FromRecord(const DedupeRecord& record, int64_t batches_per_lease) {
  Dedupe dedupe(batches_per_lease);
  if (record.retired_size() > kMaxIntervals || record.open_size() > kMaxOpenLeases) {
    return absl::InvalidArgumentError(absl::StrCat("dedupe state: expected at most ", kMaxIntervals, " intervals and ",
                                                   kMaxOpenLeases, " open leases, got ", record.retired_size(), " and ",
                                                   record.open_size()));
  }
  int64_t last_end = -1;
  for (const LeaseInterval& interval : record.retired()) {
    if (interval.begin() <= last_end || interval.end() <= interval.begin()) {
      return absl::InvalidArgumentError(absl::StrCat("dedupe state: retired leases [", interval.begin(), ", ",
                                                     interval.end(), ") are empty, out of order or touch the last"));
    }
    dedupe.retired_.emplace_hint(dedupe.retired_.end(), interval.begin(), interval.end());
    last_end = interval.end();
  }
  for (const LeaseBitmap& bitmap : record.open()) {
    const int64_t lease_number = bitmap.lease_number();
    if (lease_number < 0 || dedupe.IsRetired(lease_number) || dedupe.open_.count(lease_number) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("dedupe state: open lease ", lease_number, " is negative, retired or listed twice"));
    }
    dedupe.open_[lease_number];
    for (const int32_t batch : bitmap.applied_batches()) {
      if (!Within(batch, 0, batches_per_lease)) {
        return OutOfRange(absl::StrCat("dedupe state: batch of lease ", lease_number), 0, batches_per_lease, batch);
      }
      dedupe.Add(lease_number, batch);
    }
  }
  return dedupe;
}

}  // namespace lagrange

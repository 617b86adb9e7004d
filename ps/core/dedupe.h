// Which batches a shard has applied: a bitmap for each open lease, intervals of the leases retired.
//
// Leases are numbered through the epochs: epoch * leases_per_epoch + lease. Copyable, for forks. Caller synchronizes.
// Memory: at most kMaxOpenLeases bitmaps of batches_per_lease bits; intervals merge, so those of a job are at most its
// open leases + 1.
//
// Invariants: (D1) a lease has a bitmap or is retired, never both; (D2) intervals are disjoint and don't touch.

#ifndef PS_CORE_DEDUPE_H_
#define PS_CORE_DEDUPE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

// The job's lease table, as InstallShards gives it. Keys outside are refused before they reach a Dedupe.
struct LeaseTable {
  int64_t leases_per_epoch = 0;
  int64_t batches_per_lease = 0;

  // InvalidArgument when either is under 1 or too large for lease numbers and bitmaps.
  absl::Status Validate() const;
  // InvalidArgument names the part of the key that lies outside, and the bound.
  absl::Status CheckKey(const BatchKey& key) const;
  // REQUIRES: epoch and lease lie within.
  int64_t NumberOf(int64_t epoch, int64_t lease) const { return epoch * leases_per_epoch + lease; }
};

class Dedupe {
 public:
  // Each worker holds one or two leases, of at most 1,024 workers; the rest are leases of the dead that wait for a
  // taker.
  static constexpr size_t kMaxOpenLeases = 16384;
  // More than a job can have (see above): a bound for what comes from a disk or the chief.
  static constexpr size_t kMaxIntervals = size_t{1} << 20;

  explicit Dedupe(int64_t batches_per_lease) : batches_per_lease_(batches_per_lease) {}

  // Whether the batch was applied, or its lease is retired.
  bool Contains(int64_t lease_number, int32_t batch) const;
  bool IsOpen(int64_t lease_number) const { return open_.count(lease_number) != 0; }
  size_t open_count() const { return open_.size(); }
  // REQUIRES: 0 <= batch < batches_per_lease; the lease is open or open_count() < kMaxOpenLeases. Nothing happens when
  // the lease is retired.
  void Add(int64_t lease_number, int32_t batch);
  // Drops the bitmap. ResourceExhausted beyond kMaxIntervals; nothing changes then.
  absl::Status Retire(int64_t lease_number);

  DedupeRecord ToRecord() const;
  // Of a record that may come from a disk. InvalidArgument names what breaks D1, D2 or a bound.
  static absl::StatusOr<Dedupe> FromRecord(const DedupeRecord& record, int64_t batches_per_lease);

 private:
  bool IsRetired(int64_t lease_number) const;

  int64_t batches_per_lease_;
  // Lease number -> words of 64 batches, as many as the largest applied batch needs.
  std::map<int64_t, std::vector<uint64_t>> open_;
  // Begin -> end (excluded).
  std::map<int64_t, int64_t> retired_;
};

}  // namespace lagrange

#endif  // PS_CORE_DEDUPE_H_

// Which leases and batches of the present epoch are todo, held, done or skipped, and the epoch's account.
//
// For the chief's core. A state machine: calls change it and add the records to commit. Caller synchronizes. Owns one
// entry for each lease that is given out and not yet retired, with a bit for each of its batches: never more than the
// leases held at once by all workers (two each) plus those that wait for Retire or for another holder.
//
// Invariants (proved by ledger_test.cc and chief_restart_test.cc):
//  1. A batch is settled at most once; a report of a settled one changes nothing.
//  2. Only the holder of a lease settles its batches.
//  3. When all leases are retired, examples_done + examples_skipped = examples of the epoch.

#ifndef CHIEF_CORE_LEDGER_H_
#define CHIEF_CORE_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chief/core/records.h"
#include "common/batch_cutter.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class Ledger {
 public:
  explicit Ledger(const BatchCutter& cutter);

  // Starts an epoch with all batches todo. REQUIRES: first call, or AllRetired().
  void OpenEpoch(int64_t epoch);
  // Takes up an epoch where the records left it.
  void Resume(int64_t epoch, const Durable& durable);

  int64_t epoch() const { return epoch_; }
  const BatchCutter& cutter() const { return cutter_; }

  // ---- leases ----
  // Leases that can be given out now: free again, or never given.
  int64_t FreeCount() const;
  struct GiveOptions {
    uint64_t incarnation = 0;
    uint64_t sequence = 0;
    // -1: none.
    int64_t start_clock = -1;
  };
  // Gives out the lowest free lease, those that were held before first. REQUIRES: FreeCount() > 0.
  int64_t Give(const GiveOptions& options, std::vector<Record>* records);
  // The grant of this incarnation under this sequence, if its lease is still open and held by it.
  std::optional<LeaseGrant> GrantOf(uint64_t incarnation, uint64_t sequence) const;
  // Largest sequence that a lease which this incarnation holds was given under; 0 when it holds none.
  uint64_t LastSequenceOf(uint64_t incarnation) const;
  // Leases of this holder that have batches to settle.
  int64_t HeldBy(uint64_t incarnation) const;
  std::set<uint64_t> Holders() const;
  // Takes leases with todo batches back from a holder; they are given out again whole, less what is settled.
  void FreeLeasesOf(uint64_t incarnation, std::vector<Record>* records);

  // ---- batches ----
  // largest_cut: the highest cut number announced so far; a report above it is malformed.
  BatchVerdict Done(uint64_t incarnation, const BatchDone& done, uint64_t largest_cut, std::vector<Record>* records);
  BatchVerdict Skipped(uint64_t incarnation, const BatchSkipped& skipped, std::vector<Record>* records);

  // ---- retiring ----
  // Leases whose batches are all settled, each returned once (again after Resume).
  std::vector<RetireLeases::Lease> TakeSettled();
  // All ps have answered Retire. A lease that isn't waiting for it is ignored.
  void Retire(int64_t epoch, int64_t lease, std::vector<Record>* records);
  bool AllRetired() const;

  // ---- the account ----
  int64_t examples_done() const { return examples_done_; }
  int64_t examples_skipped() const { return examples_skipped_; }
  double loss_sum() const { return loss_sum_; }

 private:
  struct OpenLease {
    uint64_t holder = 0;
    uint64_t grant_sequence = 0;
    int64_t start_clock = -1;
    std::vector<bool> settled;
    int64_t settled_count = 0;
    uint64_t largest_cut = 0;
    bool IsSettled() const { return settled_count == static_cast<int64_t>(settled.size()); }
  };

  // ACCEPTED when the batch may be settled by this incarnation now; *lease is set then.
  BatchVerdict Judge(uint64_t incarnation, const BatchKey& key, OpenLease** lease);
  void Settle(const BatchRecord& record, OpenLease* lease);
  void Account(const BatchRecord& record);
  LeaseRecord RecordOf(int64_t lease, const OpenLease& open) const;

  BatchCutter cutter_;
  int64_t epoch_ = -1;
  // Given out and not retired.
  std::map<int64_t, OpenLease> open_;
  // Of open_: without a holder, with todo batches.
  std::set<int64_t> free_;
  // Of open_: settled, not yet returned by TakeSettled.
  std::set<int64_t> settled_;
  // Leases below have been given out.
  int64_t next_lease_ = 0;
  int64_t retired_count_ = 0;
  int64_t examples_done_ = 0;
  int64_t examples_skipped_ = 0;
  double loss_sum_ = 0;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_LEDGER_H_

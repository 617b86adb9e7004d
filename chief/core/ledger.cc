#include "chief/core/ledger.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace lagrange {
namespace {

// In records and messages; a worker's reason names a variable, an element and a step.
constexpr size_t kMaxReasonBytes = 1024;

}  // namespace

Ledger::Ledger(const BatchCutter& cutter) : cutter_(cutter) {}

void Ledger::OpenEpoch(int64_t epoch) {
  CHECK(epoch_ < 0 || AllRetired());
  *this = Ledger(cutter_);
  epoch_ = epoch;
}

void Ledger::Resume(int64_t epoch, const Durable& durable) {
  *this = Ledger(cutter_);
  epoch_ = epoch;
  for (auto it = durable.leases.lower_bound({epoch, 0}); it != durable.leases.end() && it->first.first == epoch; ++it) {
    const LeaseRecord& record = it->second;
    if (record.lease < 0 || record.lease >= cutter_.lease_count()) continue;
    next_lease_ = std::max(next_lease_, record.lease + 1);
    if (record.retired) {
      ++retired_count_;
      continue;
    }
    OpenLease& open = open_[record.lease];
    open.holder = record.holder;
    open.grant_sequence = record.grant_sequence;
    open.start_clock = record.start_clock;
    open.settled.resize(cutter_.BatchesIn(record.lease));
  }
  for (auto it = durable.batches.lower_bound({epoch, 0, 0}); it != durable.batches.end() && it->second.epoch == epoch;
       ++it) {
    const BatchRecord& record = it->second;
    Account(record);
    const auto lease = open_.find(record.lease);
    if (lease != open_.end() && record.batch >= 0 && record.batch < lease->second.settled.size()) {
      Settle(record, &lease->second);
    }
  }
  for (const auto& [lease, open] : open_) {
    if (open.IsSettled()) settled_.insert(lease);
    if (!open.IsSettled() && open.holder == 0) free_.insert(lease);
  }
}

int64_t Ledger::FreeCount() const {
  if (epoch_ < 0) return 0;
  return static_cast<int64_t>(free_.size()) + cutter_.lease_count() - next_lease_;
}

int64_t Ledger::Give(const GiveOptions& options, std::vector<Record>* records) {
  CHECK(FreeCount() > 0);
  int64_t lease = next_lease_;
  if (!free_.empty()) {
    lease = *free_.begin();
    free_.erase(free_.begin());
  } else {
    ++next_lease_;
  }
  OpenLease& open = open_[lease];
  if (open.settled.empty()) open.settled.resize(cutter_.BatchesIn(lease));
  open.holder = options.incarnation;
  open.grant_sequence = options.sequence;
  open.start_clock = options.start_clock;
  records->push_back(RecordOf(lease, open));
  return lease;
}

std::optional<LeaseGrant> Ledger::GrantOf(uint64_t incarnation, uint64_t sequence) const {
  for (const auto& [lease, open] : open_) {
    if (open.holder != incarnation || open.grant_sequence != sequence || open.IsSettled()) continue;
    LeaseGrant grant;
    grant.set_epoch(epoch_);
    grant.set_lease(lease);
    for (size_t batch = 0; batch < open.settled.size(); ++batch) {
      if (open.settled[batch]) grant.add_settled_batches(static_cast<int32_t>(batch));
    }
    if (open.start_clock >= 0) grant.set_start_clock(open.start_clock);
    return grant;
  }
  return std::nullopt;
}

uint64_t Ledger::LastSequenceOf(uint64_t incarnation) const {
  uint64_t sequence = 0;
  for (const auto& [lease, open] : open_) {
    if (open.holder == incarnation) sequence = std::max(sequence, open.grant_sequence);
  }
  return sequence;
}

int64_t Ledger::HeldBy(uint64_t incarnation) const {
  return std::count_if(open_.begin(), open_.end(), [incarnation](const auto& item) {
    return item.second.holder == incarnation && !item.second.IsSettled();
  });
}

std::set<uint64_t> Ledger::Holders() const {
  std::set<uint64_t> holders;
  for (const auto& [lease, open] : open_) {
    if (open.holder != 0 && !open.IsSettled()) holders.insert(open.holder);
  }
  return holders;
}

void Ledger::FreeLeasesOf(uint64_t incarnation, std::vector<Record>* records) {
  for (auto& [lease, open] : open_) {
    if (open.holder != incarnation || open.IsSettled()) continue;
    open.holder = 0;
    open.grant_sequence = 0;
    open.start_clock = -1;
    free_.insert(lease);
    records->push_back(RecordOf(lease, open));
  }
}

BatchVerdict Ledger::Judge(uint64_t incarnation, const BatchKey& key, OpenLease** lease) {
  if (!cutter_.Contains(key) || key.epoch() > epoch_) return UNKNOWN_BATCH;
  if (key.epoch() < epoch_) return ALREADY_SETTLED;
  const auto found = open_.find(key.lease());
  // What was given out and isn't open is retired.
  if (found == open_.end()) return key.lease() < next_lease_ ? ALREADY_SETTLED : NOT_HOLDER;
  if (found->second.settled[key.batch()]) return ALREADY_SETTLED;
  if (incarnation == 0 || found->second.holder != incarnation) return NOT_HOLDER;
  *lease = &found->second;
  return ACCEPTED;
}

BatchVerdict Ledger::Done(uint64_t incarnation, const BatchDone& done, uint64_t largest_cut,
                          std::vector<Record>* records) {
  OpenLease* lease = nullptr;
  const BatchVerdict verdict = Judge(incarnation, done.key(), &lease);
  if (verdict != ACCEPTED) return verdict;
  if (done.example_count() < 0 || done.example_count() > cutter_.ExamplesIn(done.key()) || done.cut() > largest_cut) {
    return UNKNOWN_BATCH;
  }
  BatchRecord record;
  record.epoch = done.key().epoch();
  record.lease = done.key().lease();
  record.batch = done.key().batch();
  record.state = BatchState::kDone;
  record.cut = done.cut();
  record.incarnation = incarnation;
  record.example_count = done.example_count();
  record.loss_sum = done.loss_sum();
  Account(record);
  Settle(record, lease);
  if (lease->IsSettled()) settled_.insert(record.lease);
  records->push_back(std::move(record));
  return ACCEPTED;
}

BatchVerdict Ledger::Skipped(uint64_t incarnation, const BatchSkipped& skipped, std::vector<Record>* records) {
  OpenLease* lease = nullptr;
  const BatchVerdict verdict = Judge(incarnation, skipped.key(), &lease);
  if (verdict != ACCEPTED) return verdict;
  BatchRecord record;
  record.epoch = skipped.key().epoch();
  record.lease = skipped.key().lease();
  record.batch = skipped.key().batch();
  record.state = BatchState::kSkipped;
  record.incarnation = incarnation;
  record.reason = skipped.reason().substr(0, kMaxReasonBytes);
  Account(record);
  Settle(record, lease);
  if (lease->IsSettled()) settled_.insert(record.lease);
  records->push_back(std::move(record));
  return ACCEPTED;
}

void Ledger::Settle(const BatchRecord& record, OpenLease* lease) {
  lease->settled[record.batch] = true;
  ++lease->settled_count;
  lease->largest_cut = std::max(lease->largest_cut, record.cut);
}

void Ledger::Account(const BatchRecord& record) {
  BatchKey key;
  key.set_epoch(record.epoch);
  key.set_lease(record.lease);
  key.set_batch(record.batch);
  if (!cutter_.Contains(key)) return;
  const int64_t examples = cutter_.ExamplesIn(key);
  if (record.state == BatchState::kSkipped) {
    examples_skipped_ += examples;
    return;
  }
  // Bad rows leave their batch smaller: they count as skipped.
  examples_done_ += record.example_count;
  examples_skipped_ += examples - record.example_count;
  loss_sum_ += record.loss_sum;
}

std::vector<RetireLeases::Lease> Ledger::TakeSettled() {
  std::vector<RetireLeases::Lease> leases;
  for (const int64_t lease : settled_) {
    RetireLeases::Lease& message = leases.emplace_back();
    message.set_epoch(epoch_);
    message.set_lease(lease);
    message.set_cut(open_.at(lease).largest_cut);
  }
  settled_.clear();
  return leases;
}

void Ledger::Retire(int64_t epoch, int64_t lease, std::vector<Record>* records) {
  const auto found = epoch == epoch_ ? open_.find(lease) : open_.end();
  if (found == open_.end() || !found->second.IsSettled()) return;
  LeaseRecord record = RecordOf(lease, found->second);
  record.retired = true;
  records->push_back(record);
  open_.erase(found);
  settled_.erase(lease);
  ++retired_count_;
}

bool Ledger::AllRetired() const { return epoch_ >= 0 && retired_count_ == cutter_.lease_count(); }

LeaseRecord Ledger::RecordOf(int64_t lease, const OpenLease& open) const {
  LeaseRecord record;
  record.epoch = epoch_;
  record.lease = lease;
  record.holder = open.holder;
  record.grant_sequence = open.grant_sequence;
  record.start_clock = open.start_clock;
  return record;
}

}  // namespace lagrange

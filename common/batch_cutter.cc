#include "common/batch_cutter.h"

#include <algorithm>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/prng.h"
#include "common/status.h"

namespace lagrange {
namespace {

// Where the job leaves the lease open: how much a dead worker may lose, and how evenly an epoch's end is shared.
constexpr int64_t kDefaultBatchesPerLease = 64;
constexpr int64_t kLeasesPerWorker = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Of half of `most` and up, the lease whose last turn over all workers lacks the fewest batches. Measured under bsp:
// where one worker of four was left with the last 19 batches of an epoch, the rounds of its small means cost the
// epoch's end two points of accuracy.
int64_t EvenBatchesPerLease(int64_t batches, int64_t workers, int64_t most) {
  int64_t best = most;
  int64_t least_missing = std::numeric_limits<int64_t>::max();
  for (int64_t size = most; size >= CeilDiv(most, 2); --size) {
    const int64_t turn = size * workers;
    const int64_t missing = CeilDiv(batches, turn) * turn - batches;
    if (missing >= least_missing) continue;
    least_missing = missing;
    best = size;
  }
  return best;
}

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t largest) {
  if (value >= 1 && value <= largest) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected 1 to ", largest, ", got ", value));
}

}  // namespace

absl::StatusOr<BatchCutter> BatchCutter::Create(const Options& options) {
  RETURN_IF_ERROR(CheckRange("record_count", options.record_count, kMaxRecordCount));
  RETURN_IF_ERROR(CheckRange("batch_size", options.batch_size, kMaxBatchSize));
  RETURN_IF_ERROR(CheckRange("examples_per_lease", options.examples_per_lease, std::numeric_limits<int32_t>::max()));
  return BatchCutter(options);
}

BatchCutter::Options BatchCutter::OptionsFor(const JobSpec& job, int64_t record_count) {
  Options options;
  options.record_count = record_count;
  options.batch_size = job.batch_size();
  options.examples_per_lease = job.data().examples_per_lease();
  options.seed = job.seed();
  if (options.examples_per_lease == 0 && options.batch_size > 0) {
    const int64_t workers = std::max<int64_t>(1, job.cluster().worker_count());
    const int64_t batches = CeilDiv(std::max<int64_t>(0, record_count), options.batch_size);
    const int64_t fair_share = batches / (kLeasesPerWorker * workers);
    const int64_t most = std::min(kDefaultBatchesPerLease, std::max<int64_t>(1, fair_share));
    options.examples_per_lease = options.batch_size * EvenBatchesPerLease(batches, workers, most);
  }
  return options;
}

BatchCutter::BatchCutter(const Options& options) : options_(options) {
  const int64_t all_batches = CeilDiv(options_.record_count, options_.batch_size);
  batches_per_lease_ = std::min(all_batches, CeilDiv(options_.examples_per_lease, options_.batch_size));
  options_.examples_per_lease = batches_per_lease_ * options_.batch_size;
  lease_count_ = CeilDiv(options_.record_count, options_.examples_per_lease);
  while ((int64_t{1} << (2 * half_bits_)) < options_.record_count) ++half_bits_;
}

bool BatchCutter::Contains(const BatchKey& key) const {
  return key.epoch() >= 0 && key.lease() >= 0 && key.lease() < lease_count_ && key.batch() >= 0 &&
         key.batch() < BatchesIn(key.lease());
}

int64_t BatchCutter::BatchesIn(int64_t lease) const { return CeilDiv(ExamplesIn(lease), options_.batch_size); }

int64_t BatchCutter::ExamplesIn(int64_t lease) const {
  CHECK(lease >= 0 && lease < lease_count_);
  return std::min(options_.examples_per_lease, options_.record_count - lease * options_.examples_per_lease);
}

int64_t BatchCutter::ExamplesIn(const BatchKey& key) const {
  CHECK(Contains(key));
  return std::min(options_.batch_size, ExamplesIn(key.lease()) - key.batch() * options_.batch_size);
}

void BatchCutter::RecordsOf(const BatchKey& key, std::vector<int64_t>* records) const {
  const int64_t count = ExamplesIn(key);
  const int64_t begin = key.lease() * options_.examples_per_lease + key.batch() * options_.batch_size;
  const RoundKeys keys = KeysOf(key.epoch());
  records->resize(count);
  for (int64_t i = 0; i < count; ++i) (*records)[i] = RecordAt(keys, begin + i);
}

BatchCutter::RoundKeys BatchCutter::KeysOf(int64_t epoch) const {
  const uint64_t epoch_key = CombineKeys(options_.seed, static_cast<uint64_t>(epoch));
  RoundKeys keys;
  for (size_t round = 0; round < keys.size(); ++round) keys[round] = CombineKeys(epoch_key, round);
  return keys;
}

int64_t BatchCutter::RecordAt(const RoundKeys& keys, int64_t position) const {
  const uint64_t half_mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t block = static_cast<uint64_t>(position);
  // The block is less than four times the records, so the walk takes four steps on average at most.
  do {
    uint64_t left = block >> half_bits_;
    uint64_t right = block & half_mask;
    for (const uint64_t key : keys) {
      const uint64_t mixed = left ^ (RandomBits(key, right) & half_mask);
      left = right;
      right = mixed;
    }
    block = left << half_bits_ | right;
  } while (block >= static_cast<uint64_t>(options_.record_count));
  return static_cast<int64_t>(block);
}

}  // namespace lagrange

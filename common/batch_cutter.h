// Cuts an epoch's examples into leases and batches, the same way for everyone who is given the same job.
//
// For formats with random access: the epoch's examples are one permutation of all records by (seed, epoch); lease l
// takes the positions [l * examples_per_lease, (l + 1) * examples_per_lease), the last lease fewer; batch b of a lease
// takes batch_size of its positions, the last batch fewer. So a BatchKey names the same records for ever. The chief
// needs only the counts, the worker the records.
//
// The permutation is a 4-round Feistel network on the smallest even number of bits that holds record_count, walked
// until it lands inside (Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002, section 4): any
// position's record in O(1) memory and time.
//
// Const-safe. Owns nothing but numbers; never blocks; RecordsOf allocates its answer only.

#ifndef COMMON_BATCH_CUTTER_H_
#define COMMON_BATCH_CUTTER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/data_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

// Far beyond what one job reads, and small enough that no product of counts here overflows.
inline constexpr int64_t kMaxRecordCount = int64_t{1} << 40;
inline constexpr int64_t kMaxBatchSize = int64_t{1} << 20;

class BatchCutter {
 public:
  struct Options {
    // 1 to kMaxRecordCount.
    int64_t record_count = 0;
    // 1 to kMaxBatchSize.
    int64_t batch_size = 0;
    // 1 to 2^31-1; rounded up to whole batches, and never more of them than the records make.
    int64_t examples_per_lease = 0;
    uint64_t seed = 0;
  };

  // InvalidArgument names the option and its range.
  static absl::StatusOr<BatchCutter> Create(const Options& options);

  // The options that a job (its defaults filled in) and its data's size come to. Where the job leaves the lease's size
  // open it follows from record_count and the declared workers: whoever hands the job on writes examples_per_lease into
  // it first, so that leases stay what they are when the number of workers changes.
  static Options OptionsFor(const JobSpec& job, int64_t record_count);

  int64_t record_count() const { return options_.record_count; }
  int64_t examples_per_lease() const { return options_.examples_per_lease; }
  int64_t lease_count() const { return lease_count_; }
  // Batches of a full lease; lease numbers and dedupe bitmaps are laid out by this.
  int64_t batches_per_lease() const { return batches_per_lease_; }

  // Whether the key is one of this job's (its epoch is not looked at beyond being >= 0).
  bool Contains(const BatchKey& key) const;
  // REQUIRES: 0 <= lease < lease_count().
  int64_t BatchesIn(int64_t lease) const;
  int64_t ExamplesIn(int64_t lease) const;
  // REQUIRES: Contains(key).
  int64_t ExamplesIn(const BatchKey& key) const;
  // Record numbers of the batch in its order. REQUIRES: Contains(key).
  void RecordsOf(const BatchKey& key, std::vector<int64_t>* records) const;

 private:
  explicit BatchCutter(const Options& options);
  using RoundKeys = std::array<uint64_t, 4>;
  RoundKeys KeysOf(int64_t epoch) const;
  int64_t RecordAt(const RoundKeys& keys, int64_t position) const;

  Options options_;
  int64_t lease_count_ = 0;
  int64_t batches_per_lease_ = 0;
  // Of half the network's block.
  int half_bits_ = 0;
};

}  // namespace lagrange

#endif  // COMMON_BATCH_CUTTER_H_

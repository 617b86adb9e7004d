#include "common/batch_cutter.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BatchKey Key(int64_t epoch, int64_t lease, int32_t batch) {
  BatchKey key;
  key.set_epoch(epoch);
  key.set_lease(lease);
  key.set_batch(batch);
  return key;
}

BatchCutter Cutter(int64_t records, int64_t batch_size, int64_t examples_per_lease, uint64_t seed = 7) {
  return BatchCutter::Create({records, batch_size, examples_per_lease, seed}).value();
}

std::vector<int64_t> RecordsOfEpoch(const BatchCutter& cutter, int64_t epoch) {
  std::vector<int64_t> all;
  std::vector<int64_t> records;
  for (int64_t lease = 0; lease < cutter.lease_count(); ++lease) {
    for (int64_t batch = 0; batch < cutter.BatchesIn(lease); ++batch) {
      cutter.RecordsOf(Key(epoch, lease, static_cast<int32_t>(batch)), &records);
      all.insert(all.end(), records.begin(), records.end());
    }
  }
  return all;
}

class BatchCutterOfSize : public testing::TestWithParam<int64_t> {};

TEST_P(BatchCutterOfSize, EpochCoversEveryRecordOnce) {
  const BatchCutter cutter = Cutter(GetParam(), 7, 50);
  for (const int64_t epoch : {0, 1, 1000}) {
    std::vector<int64_t> records = RecordsOfEpoch(cutter, epoch);
    std::sort(records.begin(), records.end());
    std::vector<int64_t> expected(GetParam());
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(records, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, BatchCutterOfSize, testing::Values(1, 2, 3, 4, 5, 16, 17, 31, 1000, 4096, 60000));

// Computed by an independent program from the description in batch_cutter.h and the mixing of prng.h.
TEST(BatchCutter, PermutationNeverChanges) {
  std::vector<int64_t> records;
  Cutter(60000, 8, 64).RecordsOf(Key(0, 0, 0), &records);
  EXPECT_THAT(records, ElementsAre(26093, 14734, 22245, 50600, 15427, 6244, 17809, 55404));
  Cutter(60000, 8, 64).RecordsOf(Key(1, 3, 5), &records);
  EXPECT_THAT(records, ElementsAre(22436, 12145, 15767, 36074, 23378, 12029, 23537, 9013));
  Cutter(10, 10, 10, 0).RecordsOf(Key(0, 0, 0), &records);
  EXPECT_THAT(records, ElementsAre(0, 1, 5, 2, 8, 6, 3, 4, 7, 9));
}

TEST(BatchCutter, EpochsAreOrderedDifferently) {
  const BatchCutter cutter = Cutter(1000, 10, 100);
  EXPECT_NE(RecordsOfEpoch(cutter, 0), RecordsOfEpoch(cutter, 1));
}

TEST(BatchCutter, SeedsOrderDifferently) {
  EXPECT_NE(RecordsOfEpoch(Cutter(1000, 10, 100, 1), 0), RecordsOfEpoch(Cutter(1000, 10, 100, 2), 0));
}

// A shuffle's displacement averages a third of the length; an order that hardly mixes stays far below.
TEST(BatchCutter, RecordsMixAcrossTheWholeEpoch) {
  const std::vector<int64_t> records = RecordsOfEpoch(Cutter(60000, 64, 4096), 0);
  double displacement = 0;
  for (size_t i = 0; i < records.size(); ++i) displacement += std::abs(records[i] - static_cast<int64_t>(i));
  EXPECT_NEAR(displacement / 60000 / 60000, 1.0 / 3, 0.02);
}

TEST(BatchCutter, BatchSizeDoesNotChangeTheOrder) {
  EXPECT_EQ(RecordsOfEpoch(Cutter(1000, 10, 100), 4), RecordsOfEpoch(Cutter(1000, 33, 40), 4));
}

TEST(BatchCutter, LastLeaseAndLastBatchAreShort) {
  const BatchCutter cutter = Cutter(1000, 30, 300);
  EXPECT_EQ(cutter.lease_count(), 4);
  EXPECT_EQ(cutter.batches_per_lease(), 10);
  EXPECT_EQ(cutter.ExamplesIn(2), 300);
  EXPECT_EQ(cutter.ExamplesIn(3), 100);
  EXPECT_EQ(cutter.BatchesIn(3), 4);
  EXPECT_EQ(cutter.ExamplesIn(Key(0, 3, 2)), 30);
  EXPECT_EQ(cutter.ExamplesIn(Key(0, 3, 3)), 10);
}

TEST(BatchCutter, LeaseIsRoundedUpToWholeBatches) { EXPECT_EQ(Cutter(1000, 30, 100).examples_per_lease(), 120); }

TEST(BatchCutter, LeaseIsNoLargerThanTheData) {
  const BatchCutter cutter = Cutter(10, 4, std::numeric_limits<int32_t>::max());
  EXPECT_EQ(cutter.batches_per_lease(), 3);
  EXPECT_EQ(cutter.lease_count(), 1);
  EXPECT_EQ(cutter.ExamplesIn(0), 10);
}

TEST(BatchCutter, OneRecordMakesOneBatch) {
  const BatchCutter cutter = Cutter(1, 64, 4096);
  EXPECT_EQ(cutter.lease_count(), 1);
  EXPECT_THAT(RecordsOfEpoch(cutter, 0), ElementsAre(0));
}

TEST(BatchCutter, LargestCountsStayInRange) {
  const BatchCutter cutter = Cutter(kMaxRecordCount, 1, 1);
  std::vector<int64_t> records;
  cutter.RecordsOf(Key(std::numeric_limits<int64_t>::max(), kMaxRecordCount - 1, 0), &records);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_GE(records[0], 0);
  EXPECT_LT(records[0], kMaxRecordCount);
}

TEST(BatchCutter, ContainsOnlyTheJobsKeys) {
  const BatchCutter cutter = Cutter(1000, 30, 300);
  EXPECT_TRUE(cutter.Contains(Key(0, 0, 0)));
  EXPECT_TRUE(cutter.Contains(Key(5, 3, 3)));
  EXPECT_FALSE(cutter.Contains(Key(0, 3, 4)));
  EXPECT_FALSE(cutter.Contains(Key(0, 0, 10)));
  EXPECT_FALSE(cutter.Contains(Key(0, 4, 0)));
  EXPECT_FALSE(cutter.Contains(Key(-1, 0, 0)));
  EXPECT_FALSE(cutter.Contains(Key(0, -1, 0)));
  EXPECT_FALSE(cutter.Contains(Key(0, 0, -1)));
}

TEST(BatchCutter, RefusesNoRecords) {
  const absl::Status status = BatchCutter::Create({0, 1, 1, 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("record_count: expected 1 to 1099511627776, got 0"));
}

TEST(BatchCutter, RefusesEmptyBatches) {
  EXPECT_THAT(std::string(BatchCutter::Create({1, 0, 1, 0}).status().message()),
              HasSubstr("batch_size: expected 1 to 1048576, got 0"));
}

TEST(BatchCutter, RefusesLeasesPast31Bits) {
  EXPECT_THAT(std::string(BatchCutter::Create({1, 1, int64_t{1} << 31, 0}).status().message()),
              HasSubstr("examples_per_lease: expected 1 to 2147483647, got 2147483648"));
}

JobSpec Job(int32_t batch_size, int32_t workers, int64_t examples_per_lease = 0) {
  JobSpec job;
  job.set_batch_size(batch_size);
  job.set_seed(3);
  job.mutable_cluster()->set_worker_count(workers);
  job.mutable_data()->set_examples_per_lease(examples_per_lease);
  return job;
}

TEST(BatchCutter, DefaultLeaseIsAtMost64Batches) {
  // 6000 batches, all leases whole and the same number for both workers: 60 does that, 61 to 64 don't.
  EXPECT_EQ(BatchCutter::OptionsFor(Job(10, 2), 60000).examples_per_lease, 600);
  // 6400 batches: 64 itself.
  EXPECT_EQ(BatchCutter::OptionsFor(Job(10, 2), 64000).examples_per_lease, 640);
}

TEST(BatchCutter, DefaultLeaseGivesEachWorkerEight) {
  const BatchCutter cutter = BatchCutter::Create(BatchCutter::OptionsFor(Job(64, 4), 60000)).value();
  // 938 batches for at least 32 leases: 15 to 29 in each.
  EXPECT_LE(cutter.batches_per_lease(), 29);
  EXPECT_GE(cutter.batches_per_lease(), 15);
  EXPECT_GE(cutter.lease_count(), 32);
}

TEST(BatchCutter, DefaultLeasesEndTogetherForAllWorkers) {
  // 1875 batches. Leases of 58 would leave the last 19 to one worker of four; 47 lets the four end 5 batches apart.
  const BatchCutter cutter = BatchCutter::Create(BatchCutter::OptionsFor(Job(32, 4), 60000)).value();
  EXPECT_EQ(cutter.batches_per_lease(), 47);
  EXPECT_EQ(cutter.lease_count(), 40);
  EXPECT_EQ(cutter.BatchesIn(39), 42);
}

TEST(BatchCutter, DefaultLeaseIsAtLeastOneBatch) {
  EXPECT_EQ(BatchCutter::OptionsFor(Job(64, 100), 1000).examples_per_lease, 64);
}

TEST(BatchCutter, LeaseOfTheJobIsKept) {
  const BatchCutter::Options options = BatchCutter::OptionsFor(Job(64, 4, 100), 60000);
  EXPECT_EQ(options.examples_per_lease, 100);
  EXPECT_EQ(options.record_count, 60000);
  EXPECT_EQ(options.batch_size, 64);
  EXPECT_EQ(options.seed, 3u);
}

}  // namespace
}  // namespace lagrange

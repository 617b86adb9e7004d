#include "chief/core/ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kWorker = 11;
constexpr uint64_t kOther = 12;

// 22 records in batches of 4, 2 to a lease: leases of 8, 8 and 6 records, the last batch has 2.
BatchCutter SmallCutter() {
  BatchCutter::Options options;
  options.record_count = 22;
  options.batch_size = 4;
  options.examples_per_lease = 8;
  return *BatchCutter::Create(options);
}

class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() : ledger(SmallCutter()) { ledger.OpenEpoch(0); }

  int64_t Give(uint64_t incarnation, uint64_t sequence) { return ledger.Give({incarnation, sequence, -1}, &records); }
  BatchVerdict Done(uint64_t incarnation, int64_t lease, int32_t batch, int64_t examples = 2, uint64_t cut = 1) {
    BatchDone done;
    done.mutable_key()->set_epoch(ledger.epoch());
    done.mutable_key()->set_lease(lease);
    done.mutable_key()->set_batch(batch);
    done.set_example_count(examples);
    done.set_loss_sum(1.5);
    done.set_cut(cut);
    return ledger.Done(incarnation, done, 100, &records);
  }
  Durable Committed() const {
    Durable durable;
    for (const Record& record : records) durable.Apply(record);
    return durable;
  }

  Ledger ledger;
  std::vector<Record> records;
};

TEST_F(LedgerTest, FreedLeasesAreGivenBeforeNewOnes) {
  EXPECT_EQ(Give(kWorker, 1), 0);
  EXPECT_EQ(Give(kOther, 1), 1);
  ledger.FreeLeasesOf(kWorker, &records);
  EXPECT_EQ(ledger.FreeCount(), 2);
  EXPECT_EQ(Give(kOther, 2), 0);
  EXPECT_EQ(Give(kOther, 3), 2);
  EXPECT_EQ(ledger.FreeCount(), 0);
}

TEST_F(LedgerTest, AFreedLeaseKeepsWhatIsSettled) {
  Give(kWorker, 1);
  ASSERT_EQ(Done(kWorker, 0, 0), ACCEPTED);
  ledger.FreeLeasesOf(kWorker, &records);
  Give(kOther, 4);
  EXPECT_THAT(ledger.GrantOf(kOther, 4)->settled_batches(), ElementsAre(0));
  EXPECT_FALSE(ledger.GrantOf(kWorker, 1).has_value());
}

TEST_F(LedgerTest, OnlyTheHolderSettles) {
  Give(kWorker, 1);
  EXPECT_EQ(Done(kOther, 0, 0), NOT_HOLDER);
  EXPECT_EQ(Done(0, 0, 0), NOT_HOLDER);
  EXPECT_EQ(Done(kWorker, 0, 0), ACCEPTED);
  EXPECT_EQ(ledger.examples_done(), 2);
}

TEST_F(LedgerTest, ASettledBatchStaysAsItIs) {
  Give(kWorker, 1);
  ASSERT_EQ(Done(kWorker, 0, 0), ACCEPTED);
  const size_t before = records.size();
  EXPECT_EQ(Done(kWorker, 0, 0), ALREADY_SETTLED);
  BatchSkipped skipped;
  skipped.mutable_key()->set_lease(0);
  EXPECT_EQ(ledger.Skipped(kWorker, skipped, &records), ALREADY_SETTLED);
  EXPECT_EQ(records.size(), before);
}

TEST_F(LedgerTest, ASettledLeaseIsToldOnceWithTheLargestCut) {
  Give(kWorker, 1);
  Done(kWorker, 0, 0, 4, 7);
  EXPECT_THAT(ledger.TakeSettled(), IsEmpty());
  Done(kWorker, 0, 1, 4, 5);
  const auto settled = ledger.TakeSettled();
  ASSERT_EQ(settled.size(), 1);
  EXPECT_EQ(settled[0].cut(), 7);
  EXPECT_THAT(ledger.TakeSettled(), IsEmpty());
}

TEST_F(LedgerTest, ASettledLeaseIsNotTakenFromItsHolder) {
  Give(kWorker, 1);
  Done(kWorker, 0, 0);
  Done(kWorker, 0, 1);
  ledger.FreeLeasesOf(kWorker, &records);
  EXPECT_EQ(ledger.FreeCount(), 2);
}

TEST_F(LedgerTest, ReportsOfARetiredLeaseAndOfAnEarlierEpochAreSettled) {
  for (int64_t lease = 0; lease < 3; ++lease) {
    Give(kWorker, lease + 1);
    Done(kWorker, lease, 0);
    Done(kWorker, lease, 1);
    ledger.Retire(0, lease, &records);
    EXPECT_EQ(Done(kWorker, lease, 0), ALREADY_SETTLED);
  }
  ASSERT_TRUE(ledger.AllRetired());
  ledger.OpenEpoch(1);
  BatchDone old;
  old.mutable_key()->set_lease(1);
  EXPECT_EQ(ledger.Done(kWorker, old, 100, &records), ALREADY_SETTLED);
}

TEST_F(LedgerTest, ALeaseWithOpenBatchesDoesNotRetire) {
  Give(kWorker, 1);
  Done(kWorker, 0, 0);
  ledger.Retire(0, 0, &records);
  EXPECT_EQ(Done(kWorker, 0, 1), ACCEPTED);
}

TEST_F(LedgerTest, TheAccountClosesWithSkippedBatchesAndBadRows) {
  for (int64_t lease = 0; lease < 3; ++lease) Give(kWorker, lease + 1);
  BatchSkipped skipped;
  skipped.mutable_key()->set_lease(0);
  ASSERT_EQ(ledger.Skipped(kWorker, skipped, &records), ACCEPTED);
  // One of 4 rows was bad.
  ASSERT_EQ(Done(kWorker, 0, 1, 3), ACCEPTED);
  for (int32_t batch = 0; batch < 2; ++batch) {
    ASSERT_EQ(Done(kWorker, 1, batch, 4), ACCEPTED);
    ASSERT_EQ(Done(kWorker, 2, batch, batch == 0 ? 4 : 2), ACCEPTED);
  }
  EXPECT_EQ(ledger.examples_done(), 17);
  EXPECT_EQ(ledger.examples_skipped(), 5);
}

TEST_F(LedgerTest, MoreExamplesThanTheBatchHasAreRefused) {
  for (int64_t lease = 0; lease < 3; ++lease) Give(kWorker, lease + 1);
  EXPECT_EQ(Done(kWorker, 2, 1, 3), UNKNOWN_BATCH);
  EXPECT_EQ(Done(kWorker, 2, 1, 2), ACCEPTED);
}

TEST_F(LedgerTest, ResumesWhereTheRecordsLeftIt) {
  Give(kWorker, 1);
  Give(kOther, 6);
  Done(kWorker, 0, 0, 4);
  Done(kWorker, 0, 1, 4);
  Done(kOther, 1, 1, 4, 9);
  ledger.Give({kWorker, 3, 21}, &records);
  ledger.FreeLeasesOf(kOther, &records);

  Ledger resumed(SmallCutter());
  resumed.Resume(0, Committed());
  EXPECT_EQ(resumed.examples_done(), 12);
  EXPECT_EQ(resumed.loss_sum(), 4.5);
  EXPECT_EQ(resumed.FreeCount(), 1);
  EXPECT_EQ(resumed.TakeSettled().size(), 1);
  EXPECT_EQ(resumed.GrantOf(kWorker, 3)->start_clock(), 21);
  EXPECT_EQ(resumed.LastSequenceOf(kWorker), 3);
  EXPECT_THAT(resumed.Holders(), ElementsAre(kWorker));
  EXPECT_EQ(resumed.Give({kOther, 8, -1}, &records), 1);
  EXPECT_THAT(resumed.GrantOf(kOther, 8)->settled_batches(), ElementsAre(1));
}

}  // namespace
}  // namespace lagrange

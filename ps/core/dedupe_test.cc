#include "ps/core/dedupe.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <utility>

#include "common/prng.h"

namespace lagrange {
namespace {

DedupeRecord Record(const std::string& text) {
  DedupeRecord record;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &record));
  return record;
}

TEST(Dedupe, HoldsWhatWasAddedAndNothingElse) {
  Dedupe dedupe(200);
  dedupe.Add(3, 0);
  dedupe.Add(3, 64);
  dedupe.Add(3, 199);
  for (int32_t batch = 0; batch < 200; ++batch) {
    EXPECT_EQ(dedupe.Contains(3, batch), batch == 0 || batch == 64 || batch == 199) << batch;
    EXPECT_FALSE(dedupe.Contains(2, batch));
  }
}

TEST(Dedupe, ARetiredLeaseHoldsAllItsBatches) {
  Dedupe dedupe(10);
  dedupe.Add(5, 1);
  ASSERT_TRUE(dedupe.Retire(5).ok());
  for (int32_t batch = 0; batch < 10; ++batch) EXPECT_TRUE(dedupe.Contains(5, batch));
  EXPECT_FALSE(dedupe.Contains(4, 1));
  EXPECT_FALSE(dedupe.Contains(6, 1));
  EXPECT_EQ(dedupe.open_count(), 0);
}

TEST(Dedupe, AnAddToARetiredLeaseOpensNothing) {
  Dedupe dedupe(10);
  ASSERT_TRUE(dedupe.Retire(5).ok());
  dedupe.Add(5, 3);
  EXPECT_EQ(dedupe.open_count(), 0);
}

// Against a set, in a random order: intervals must merge to one and never swallow a neighbour.
TEST(Dedupe, RetiringInAnyOrderMergesToOneInterval) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Dedupe dedupe(1);
    std::set<std::pair<uint64_t, int64_t>> order;
    for (int64_t lease = 0; lease < 60; ++lease) order.emplace(RandomBits(seed, lease), lease);
    std::set<int64_t> retired;
    for (const auto& [rank, lease] : order) {
      ASSERT_TRUE(dedupe.Retire(lease).ok());
      ASSERT_TRUE(dedupe.Retire(lease).ok());
      retired.insert(lease);
      for (int64_t other = 0; other < 60; ++other) {
        EXPECT_EQ(dedupe.Contains(other, 0), retired.count(other) != 0) << "seed " << seed;
      }
    }
    const DedupeRecord record = dedupe.ToRecord();
    ASSERT_EQ(record.retired_size(), 1);
    EXPECT_EQ(record.retired(0).begin(), 0);
    EXPECT_EQ(record.retired(0).end(), 60);
  }
}

TEST(Dedupe, ARecordGoesThereAndBack) {
  Dedupe dedupe(130);
  for (const int64_t lease : {0, 1, 2, 7}) ASSERT_TRUE(dedupe.Retire(lease).ok());
  dedupe.Add(4, 129);
  dedupe.Add(4, 0);
  dedupe.Add(9, 63);
  const DedupeRecord record = dedupe.ToRecord();
  const auto restored = Dedupe::FromRecord(record, 130);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->ToRecord().SerializeAsString(), record.SerializeAsString());
  EXPECT_EQ(record.retired_size(), 2);
  EXPECT_THAT(record.open(0).applied_batches(), testing::ElementsAre(0, 129));
  EXPECT_TRUE(restored->Contains(9, 63));
  EXPECT_FALSE(restored->Contains(9, 62));
}

TEST(Dedupe, ADamagedRecordIsRefused) {
  for (const char* text :
       {"retired { begin: 3 end: 3 }", "retired { begin: -2 end: 3 }", "retired { begin: 5 end: 4 }",
        "retired { begin: 0 end: 2 } retired { begin: 1 end: 4 }",
        "retired { begin: 0 end: 2 } retired { begin: 2 end: 4 }",
        "retired { begin: 5 end: 6 } retired { begin: 1 end: 2 }", "open { lease_number: -1 }",
        "open { lease_number: 4 } open { lease_number: 4 }", "retired { begin: 0 end: 5 } open { lease_number: 4 }",
        "open { lease_number: 4 applied_batches: 10 }", "open { lease_number: 4 applied_batches: -1 }"}) {
    EXPECT_EQ(Dedupe::FromRecord(Record(text), 10).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Dedupe, ACopyIsIndependent) {
  Dedupe dedupe(10);
  dedupe.Add(1, 1);
  const Dedupe copy = dedupe;
  dedupe.Add(1, 2);
  EXPECT_FALSE(copy.Contains(1, 2));
}

TEST(LeaseTable, RefusesKeysOutsideOfTheTable) {
  const LeaseTable leases{7, 5};
  const auto check = [&leases](int64_t epoch, int64_t lease, int32_t batch) {
    BatchKey key;
    key.set_epoch(epoch);
    key.set_lease(lease);
    key.set_batch(batch);
    return leases.CheckKey(key).code();
  };
  EXPECT_EQ(check(0, 0, 0), absl::StatusCode::kOk);
  EXPECT_EQ(check(std::numeric_limits<int32_t>::max() - 1, 6, 4), absl::StatusCode::kOk);
  EXPECT_EQ(check(-1, 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(std::numeric_limits<int64_t>::max(), 0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(0, 7, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(0, -1, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(0, 0, 5), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(check(0, 0, -1), absl::StatusCode::kInvalidArgument);
}

TEST(LeaseTable, NumbersLeasesThroughTheEpochs) {
  const LeaseTable leases{7, 5};
  EXPECT_EQ(leases.NumberOf(0, 6), 6);
  EXPECT_EQ(leases.NumberOf(1, 0), 7);
  EXPECT_EQ(leases.NumberOf(3, 2), 23);
}

TEST(LeaseTable, RefusesSizesThatCouldOverflowOrFillMemory) {
  for (const LeaseTable& bad : {LeaseTable{0, 1}, LeaseTable{1, 0}, LeaseTable{-1, 1}, LeaseTable{int64_t{1} << 31, 1},
                                LeaseTable{1, (int64_t{1} << 26) + 1}}) {
    EXPECT_EQ(bad.Validate().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE((LeaseTable{1, 1}.Validate().ok()));
}

}  // namespace
}  // namespace lagrange

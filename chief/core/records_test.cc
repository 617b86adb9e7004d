#include "chief/core/records.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

TEST(Durable, ALaterRecordOfTheSameKeyReplacesTheEarlierOne) {
  Durable durable;
  durable.Apply(LeaseRecord{1, 2, 7, 3, 4, false});
  durable.Apply(LeaseRecord{1, 2, 8, 5, 6, true});
  durable.Apply(LeaseRecord{1, 3, 9, 1, -1, false});
  ASSERT_EQ(durable.leases.size(), 2);
  EXPECT_EQ(durable.leases.at({1, 2}).holder, 8);
  EXPECT_EQ(durable.leases.at({1, 2}).start_clock, 6);
  EXPECT_TRUE(durable.leases.at({1, 2}).retired);
}

TEST(Durable, KeepsEachKindOfRecordUnderItsKey) {
  Durable durable;
  MemberRecord member;
  member.incarnation = 5;
  BatchRecord batch;
  batch.epoch = 1;
  batch.lease = 2;
  batch.batch = 3;
  EvaluationRecord evaluation;
  evaluation.epoch = 1;
  evaluation.first_record = 2048;
  EpochRecord epoch;
  epoch.epoch = 4;
  CheckpointRecord checkpoint;
  checkpoint.cut = 9;
  ShardMapRecord map;
  map.map.set_version(3);
  ModelRecord model;
  model.train_records = 60000;
  const std::vector<Record> records = {CounterRecord{"cut", 9},
                                       member,
                                       batch,
                                       evaluation,
                                       epoch,
                                       checkpoint,
                                       map,
                                       model,
                                       EndRecord{absl::StatusCode::kAborted, "why"}};
  for (const Record& record : records) durable.Apply(record);
  EXPECT_EQ(durable.counters.at("cut"), 9);
  EXPECT_EQ(durable.members.count(5), 1);
  EXPECT_EQ(durable.batches.count({1, 2, 3}), 1);
  EXPECT_EQ(durable.evaluations.count({1, 2048}), 1);
  EXPECT_EQ(durable.epochs.count(4), 1);
  EXPECT_EQ(durable.checkpoints.count(9), 1);
  EXPECT_EQ(durable.map.version(), 3);
  EXPECT_TRUE(durable.has_model);
  EXPECT_EQ(durable.model.train_records, 60000);
  EXPECT_TRUE(durable.ended);
  EXPECT_EQ(durable.end.reason, "why");
}

}  // namespace
}  // namespace lagrange

#include "chief/core/clock_tables.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

Member MakeMember(uint64_t incarnation) {
  Member member;
  member.record.incarnation = incarnation;
  member.record.role = WORKER;
  return member;
}

TEST(ClockTables, AWorkerIsJoinedWhenTheLastPsHasAnswered) {
  ClockTables tables(2);
  Member worker = MakeMember(1);
  std::vector<Record> records;
  const MemberChange join = tables.Join(&worker, &records);
  tables.Answered(1, join, 5);
  EXPECT_EQ(tables.StateOf(1), TableState::kJoining);
  EXPECT_FALSE(tables.Awaits(1, join));
  tables.Answered(0, join, 3);
  EXPECT_EQ(tables.StateOf(1), TableState::kJoined);
  EXPECT_EQ(tables.StartClockOf(1), 5);
}

TEST(ClockTables, AnAnswerToAnEarlierJoinDoesNotCount) {
  ClockTables tables(1);
  Member worker = MakeMember(1);
  std::vector<Record> records;
  const MemberChange first = tables.Join(&worker, &records);
  tables.Park(&worker, &records);
  EXPECT_TRUE(tables.AllOut());
  const MemberChange second = tables.Join(&worker, &records);
  EXPECT_FALSE(tables.Awaits(0, first));
  EXPECT_TRUE(tables.Awaits(0, second));
}

TEST(ClockTables, SequencesGrowAndAreReservedInBlocks) {
  ClockTables tables(1);
  Member worker = MakeMember(1);
  std::vector<Record> records;
  uint64_t last = 0;
  for (int i = 0; i < 1500; ++i) {
    const MemberChange change = i % 2 == 0 ? tables.Join(&worker, &records) : tables.Park(&worker, &records);
    EXPECT_GT(change.sequence(), last);
    last = change.sequence();
    EXPECT_LE(last, worker.record.membership_sequence_reserved);
  }
  EXPECT_EQ(records.size(), 2);
  EXPECT_GT(tables.Evict(worker.record).sequence(), last);
}

}  // namespace
}  // namespace lagrange

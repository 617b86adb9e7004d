// Rounds of the single-threaded engine: the mean, who is waited for, what closes a round, what is counted once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "ps/core/engine.h"
#include "ps/core/engine_testing.h"

namespace {

bool memory_is_out = false;

void* Aligned(size_t bytes, std::align_val_t alignment) {
  const size_t unit = static_cast<size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

}  // namespace

// The buffers' own, and what frees them.
void* operator new(size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return memory_is_out ? nullptr : Aligned(bytes, alignment);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  void* memory = Aligned(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace lagrange {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two shards, workers 1 and 2.
class EngineBspTest : public testing::Test {
 protected:
  EngineBspTest() : ps_(NewSingleThreadEngine({}), Job()) {
    ps_.Install();
    ps_.Join(1);
    ps_.Join(2);
  }
  static EngineTestJob Job() {
    EngineTestJob job;
    job.consistency = "bsp {}";
    return job;
  }
  RequestHeader PushHeader(uint64_t worker, int64_t clock, int32_t batch, int64_t example_count = 1) {
    RequestHeader header = ps_.PushHeader(worker, clock, batch);
    header.set_example_count(example_count);
    return header;
  }

  EngineDriver ps_;
};

TEST_F(EngineBspTest, ARoundIsTheMeanByExamplesOfAllWorkersAppliedOnce) {
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0, 3), -4);
  EXPECT_EQ(ps_.PushCode(first), REPLY_CODE_UNSPECIFIED);
  EXPECT_EQ(ps_.Now(), Floats(6, 0));
  const RequestToken second = ps_.Push(PushHeader(2, 0, 1, 1), -8);
  EXPECT_THAT(ps_.Outcomes(first), ElementsAre(APPLIED, APPLIED));
  EXPECT_THAT(ps_.Outcomes(second), ElementsAre(APPLIED, APPLIED));
  EXPECT_EQ(ps_.Now(), Floats(6, 5));
  EXPECT_EQ(ps_.engine().Snapshot()[0].version, 1);
}

TEST_F(EngineBspTest, OneWorkerIsAsGoodAsAsp) {
  ASSERT_TRUE(ps_.ChangeMember(2, MemberChange::EVICTED, 2).ok());
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(1, 0, 0, 7), -0.1f)), ElementsAre(APPLIED, APPLIED));
  EXPECT_EQ(ps_.Now(), Floats(6, 0.1f));
}

TEST_F(EngineBspTest, APullWaitsForEveryMembersClock) {
  ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -1);
  const RequestToken ahead = ps_.Pull(ps_.Header(1, 1));
  EXPECT_EQ(ps_.PullCode(ahead), REPLY_CODE_UNSPECIFIED);
  const RequestToken last = ps_.Pull(ps_.Header(2, 1));
  EXPECT_EQ(ps_.PullCode(ahead), OK);
  EXPECT_EQ(ps_.AnsweredPull(last)->header.staleness_clocks(), 0);
  EXPECT_EQ(ps_.AnsweredPull(ahead)->header.staleness_clocks(), 0);
}

TEST_F(EngineBspTest, ARoundClosesWhenTheLastOneWaitedForIsEvicted) {
  const RequestToken push = ps_.Push(PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps_.ChangeMember(2, MemberChange::EVICTED, 2).ok());
  EXPECT_THAT(ps_.Outcomes(push), ElementsAre(APPLIED, APPLIED));
  EXPECT_EQ(ps_.Now(), Floats(6, 1));
}

TEST_F(EngineBspTest, ARoundClosesWhenTheLastOneWaitedForIsParked) {
  const RequestToken push = ps_.Push(PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps_.ChangeMember(2, MemberChange::PARKED, 2).ok());
  EXPECT_THAT(ps_.Outcomes(push), ElementsAre(APPLIED, APPLIED));
}

TEST_F(EngineBspTest, TheContributionOfAnEvictedWorkerStays) {
  const RequestToken gone = ps_.Push(PushHeader(1, 0, 0), -3);
  ASSERT_TRUE(ps_.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  EXPECT_EQ(ps_.PushCode(gone), FENCED);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.Now(), Floats(6, 2));
}

TEST_F(EngineBspTest, TheBatchOfAnEvictedWorkerIsAnEmptyContributionWhenComputedAgain) {
  ps_.Push(PushHeader(1, 0, 0), -3);
  ASSERT_TRUE(ps_.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  const RequestToken again = ps_.Push(PushHeader(2, 0, 0), -1);
  EXPECT_THAT(ps_.Outcomes(again), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps_.Now(), Floats(6, 3));
  EXPECT_EQ(ps_.engine().Snapshot()[0].version, 1);
}

// A worker killed between its parts: counted on the shard that has it, and once elsewhere when computed again.
TEST_F(EngineBspTest, APartialContributionIsCountedWhereItIsAndOnceElsewhereLater) {
  const RequestHeader killed = PushHeader(1, 0, 0);
  ASSERT_TRUE(ps_.engine().BeginPush(killed, 70, 70, &ps_.effects()));
  ps_.PushPart(killed, 0, -3);
  ASSERT_TRUE(ps_.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.Now(), Floats({2, 2, 2, 1, 1, 1}));
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(2, 1, 0), -3)), ElementsAre(DUPLICATE, APPLIED));
  EXPECT_EQ(ps_.Now(), Floats({2, 2, 2, 4, 4, 4}));
}

TEST_F(EngineBspTest, ARepeatForAnOpenRoundReplacesTheTokenAndAddsNothing) {
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0), -1);
  const RequestToken repeat = ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -3);
  EXPECT_EQ(ps_.PushCode(first), REPLY_CODE_UNSPECIFIED);
  EXPECT_THAT(ps_.Outcomes(repeat), ElementsAre(APPLIED, APPLIED));
  EXPECT_EQ(ps_.Now(), Floats(6, 2));
}

TEST_F(EngineBspTest, ARepeatForAClosedRoundIsADuplicateAtOnce) {
  ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(1, 0, 0), -1)), ElementsAre(DUPLICATE, DUPLICATE));
}

TEST_F(EngineBspTest, APushForAClosedRoundThatWasNotAppliedIsLate) {
  ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(1, 0, 5), -1)), ElementsAre(LATE, LATE));
  EXPECT_EQ(ps_.Now(), Floats(6, 1));
}

TEST_F(EngineBspTest, AForgottenPushStillCounts) {
  const RequestToken push = ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.engine().Forget({push});
  ps_.Push(PushHeader(2, 0, 1), -3);
  EXPECT_EQ(ps_.PushCode(push), REPLY_CODE_UNSPECIFIED);
  EXPECT_EQ(ps_.Now(), Floats(6, 2));
}

TEST_F(EngineBspTest, AJoinerIsWaitedForInTheOpenRound) {
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0), -1);
  EXPECT_EQ(ps_.Join(3), 0);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.PushCode(first), REPLY_CODE_UNSPECIFIED);
  ps_.Push(PushHeader(3, 0, 2), -4);
  EXPECT_EQ(ps_.PushCode(first), OK);
  EXPECT_FLOAT_EQ(ps_.Now()[0], 2);
}

TEST_F(EngineBspTest, AJoinerEntersBehindTheClosedRounds) {
  ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.Join(3), 1);
}

TEST_F(EngineBspTest, AJoinerThatStartsAtALaterClockIsNotWaitedFor) {
  EXPECT_EQ(ps_.Join(3), 0);
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.PushCode(first), REPLY_CODE_UNSPECIFIED);
  ps_.Pull(ps_.Header(3, 1));
  EXPECT_EQ(ps_.PushCode(first), OK);
}

TEST_F(EngineBspTest, ACutInAnOpenRoundLeavesItOutAndAcknowledgesUnderTheCut) {
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  ps_.Push(PushHeader(2, 0, 1), -1);
  EXPECT_EQ(ps_.AnsweredPush(first)->header.cut(), 11);
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 0));
  EXPECT_THAT(ps_.engine().GetFork(11).value()[0].dedupe.open(), IsEmpty());
}

// While this is held, an update needs a fresh buffer.
using Held = std::vector<ShardSnapshot>;

TEST_F(EngineBspTest, ARoundThatMemoryDoesNotSufficeForIsSentAgainAndAppliedOnce) {
  const Held held = ps_.engine().Snapshot();
  const RequestToken first = ps_.Push(PushHeader(1, 0, 0), -4);
  memory_is_out = true;
  const RequestToken second = ps_.Push(PushHeader(2, 0, 1), -8);
  memory_is_out = false;
  EXPECT_EQ(ps_.PushCode(first), UNAVAILABLE);
  EXPECT_EQ(ps_.PushCode(second), UNAVAILABLE);
  EXPECT_EQ(ps_.Now(), Floats(6, 0));
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(1, 0, 0), -4)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(2, 0, 1), -8)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps_.Now(), Floats(6, 6));
}

TEST_F(EngineBspTest, ADuplicateOfWhatMemoryDidNotSufficeForIsNotAcknowledged) {
  const Held held = ps_.engine().Snapshot();
  ps_.Push(PushHeader(1, 0, 0), -4);
  memory_is_out = true;
  ASSERT_TRUE(ps_.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  ps_.Push(PushHeader(2, 0, 1), -8);
  const RequestToken duplicate = ps_.Push(PushHeader(2, 0, 0), -4);
  memory_is_out = false;
  EXPECT_EQ(ps_.PushCode(duplicate), UNAVAILABLE);
  EXPECT_THAT(ps_.Outcomes(ps_.Push(PushHeader(2, 0, 0), -4)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps_.Now(), Floats(6, 6));
}

TEST_F(EngineBspTest, AThirdOpenRoundIsRefused) {
  ps_.Join(3);
  ps_.Join(4);
  ps_.Push(PushHeader(1, 0, 0), -1);
  ps_.Push(PushHeader(2, 1, 1), -1);
  EXPECT_EQ(ps_.PushCode(ps_.Push(PushHeader(3, 2, 2), -1)), REFUSED);
}

TEST_F(EngineBspTest, TwoWorkersOfOneBatchEqualOneWorkerOfTwo) {
  EngineTestJob job = Job();
  job.optimizer = "adam { learning_rate: 0.1 beta1: 0.9 beta2: 0.999 epsilon: 1e-7 }";
  EngineDriver two(NewSingleThreadEngine({}), job);
  EngineDriver one(NewSingleThreadEngine({}), job);
  two.Install();
  one.Install();
  two.Join(1);
  two.Join(2);
  one.Join(1);
  for (int64_t clock = 0; clock < 20; ++clock) {
    const float a = 0.3f * static_cast<float>(clock) - 2;
    const float b = 1.7f - 0.1f * static_cast<float>(clock);
    two.Push(two.PushHeader(1, clock, 2 * clock), a);
    two.Push(two.PushHeader(2, clock, 2 * clock + 1), b);
    one.Push(one.PushHeader(1, clock, clock), (a + b) / 2);
  }
  EXPECT_THAT(two.Now(), testing::Pointwise(testing::FloatNear(1e-5), one.Now()));
  EXPECT_EQ(two.engine().Snapshot()[1].version, 20);
}

}  // namespace
}  // namespace lagrange

// Cuts of the single-threaded engine: what a fork holds, who raises the number, what the replies prove.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ps/core/engine.h"
#include "ps/core/engine_testing.h"

namespace lagrange {
namespace {

// Two shards, asp, workers 1 and 2; the cut is 10 at first.
class EngineCutTest : public testing::Test {
 protected:
  EngineCutTest() : ps_(NewSingleThreadEngine({}), EngineTestJob()) {
    ps_.Install();
    ps_.Join(1);
    ps_.Join(2);
  }
  uint64_t CutOf(RequestToken push) const { return ps_.AnsweredPush(push)->header.cut(); }

  EngineDriver ps_;
};

TEST_F(EngineCutTest, AForkHoldsThePushesBeforeItsCutAndNoneAfter) {
  const RequestToken before = ps_.Push(ps_.PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  const RequestToken after = ps_.Push(ps_.PushHeader(1, 1, 1), -1);
  EXPECT_EQ(CutOf(before), 10);
  EXPECT_EQ(CutOf(after), 11);
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 1));
  EXPECT_EQ(ps_.Now(), Floats(6, 2));
}

// No push in a cut was computed from a state outside of it: the push that carries cut 11 must not be in fork 11, though
// the chief's announcement hasn't come.
TEST_F(EngineCutTest, APushStampedWithACutIsNotInItsFork) {
  ps_.Push(ps_.PushHeader(1, 0, 0), -1);
  const RequestToken stamped = ps_.Push(ps_.PushHeader(2, 0, 1, 11), -1);
  EXPECT_EQ(CutOf(stamped), 11);
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 1));
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 1));
}

TEST_F(EngineCutTest, ALatePushOfALowerStampGoesToLiveStateOnly) {
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  const RequestToken late = ps_.Push(ps_.PushHeader(1, 0, 0, 10), -1);
  EXPECT_EQ(CutOf(late), 11);
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 0));
}

// The parts of one push on either side of a cut: the acknowledgement must not claim that the fork holds all of them.
TEST_F(EngineCutTest, APushThatTheCutCameBetweenIsAcknowledgedUnderTheCut) {
  const RequestHeader header = ps_.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps_.engine().BeginPush(header, 70, 70, &ps_.effects()));
  const ShardResult first = ps_.PushPart(header, 0, -1);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  const ShardResult second = ps_.PushPart(header, 1, -1);
  ps_.engine().EndPush(header, 70, 70, {first, second}, &ps_.effects());
  EXPECT_EQ(CutOf(70), 11);
  EXPECT_EQ(ps_.AtCut(11), Floats({1, 1, 1, 0, 0, 0}));
  const auto fork = ps_.engine().GetFork(11).value();
  EXPECT_EQ(fork[0].dedupe.open_size(), 1);
  EXPECT_EQ(fork[1].dedupe.open_size(), 0);
}

TEST_F(EngineCutTest, RetiringALeaseRaisesTheCutFirst) {
  PsCommand command = ps_.Command();
  RetireLeases::Lease* lease = command.mutable_retire_leases()->add_leases();
  lease->set_lease(2);
  lease->set_cut(13);
  const auto result = ps_.Execute(command);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->cut(), 13);
  EXPECT_EQ(ps_.engine().GetFork(13).value()[0].dedupe.retired_size(), 0);
  EXPECT_EQ(ps_.engine().Snapshot()[0].dedupe.retired_size(), 1);
}

TEST_F(EngineCutTest, ARetireOutsideOfTheTableIsRefused) {
  PsCommand command = ps_.Command();
  command.mutable_retire_leases()->add_leases()->set_lease(kTestLeases);
  EXPECT_EQ(ps_.Execute(command).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineCutTest, PullRepliesCarryTheCut) {
  ASSERT_TRUE(ps_.AnnounceCut(12).ok());
  EXPECT_EQ(ps_.AnsweredPull(ps_.Pull(ps_.Header(1, 0)))->header.cut(), 12);
}

TEST_F(EngineCutTest, AnOlderAnnouncementChangesNothing) {
  ASSERT_TRUE(ps_.AnnounceCut(12).ok());
  const auto older = ps_.AnnounceCut(11);
  ASSERT_TRUE(older.ok());
  EXPECT_EQ(older->cut(), 12);
}

TEST_F(EngineCutTest, ACutOvertakenByAStampHasItsFork) {
  ps_.Push(ps_.PushHeader(1, 0, 0), -1);
  ps_.Push(ps_.PushHeader(1, 1, 1, 12), -1);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  EXPECT_EQ(ps_.AtCut(11), Floats(6, 1));
}

TEST_F(EngineCutTest, APinnedPullReadsTheForkWhateverTheClocksSay) {
  ps_.Push(ps_.PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  ps_.Push(ps_.PushHeader(1, 1, 1), -1);
  RequestHeader header = ps_.Header(/*incarnation=*/555, 0);
  header.set_pinned_cut(11);
  const PullAnswer* answer = ps_.AnsweredPull(ps_.Pull(header));
  ASSERT_EQ(answer->header.code(), OK);
  ASSERT_EQ(answer->shards.size(), 2);
  EXPECT_EQ(Values(answer->shards[1].parameters), Floats(3, 1));
  EXPECT_EQ(answer->shards[1].version, 1);
}

TEST_F(EngineCutTest, APinnedPullOfACutNotHeldIsAnsweredSo) {
  RequestHeader header = ps_.Header(1, 0);
  for (const uint64_t cut : {9, 10, 11}) {
    header.set_pinned_cut(cut);
    const PullAnswer* answer = ps_.AnsweredPull(ps_.Pull(header));
    EXPECT_EQ(answer->header.code(), NO_SUCH_CUT) << cut;
    EXPECT_TRUE(answer->shards.empty());
  }
}

TEST_F(EngineCutTest, AReleasedCutIsNotHeldAndLaterOnesAre) {
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  ASSERT_TRUE(ps_.AnnounceCut(12).ok());
  PsCommand release = ps_.Command();
  release.mutable_release_cut()->set_cut(11);
  ASSERT_TRUE(ps_.Execute(release).ok());
  ASSERT_TRUE(ps_.Execute(release).ok());
  EXPECT_EQ(ps_.engine().GetFork(11).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(ps_.engine().GetFork(12).ok());
}

TEST_F(EngineCutTest, WriteCheckpointAsksThatTheCutIsHeld) {
  PsCommand write = ps_.Command();
  write.mutable_write_checkpoint()->set_cut(11);
  EXPECT_EQ(ps_.Execute(write).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(ps_.AnnounceCut(11).ok());
  EXPECT_TRUE(ps_.Execute(write).ok());
}

}  // namespace
}  // namespace lagrange

// The single-threaded engine driven by hand: fences, exactly once, admission, membership, installing and restoring.

#include "ps/core/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ps/core/engine_testing.h"

namespace lagrange {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class EngineTest : public testing::Test {
 protected:
  // Workers 1 and 2 are in.
  EngineDriver Make(const std::string& consistency = "asp {}") {
    EngineTestJob job;
    job.consistency = consistency;
    EngineDriver driver(NewSingleThreadEngine({}), job);
    driver.Install();
    EXPECT_EQ(driver.Join(1), 0);
    EXPECT_EQ(driver.Join(2), 0);
    return driver;
  }
};

// ---- exactly once
// ----------------------------------------------------------------------------------------------------

TEST_F(EngineTest, APushIsAppliedToEveryShard) {
  EngineDriver ps = Make();
  EXPECT_THAT(ps.Outcomes(ps.Push(ps.PushHeader(1, 0, 0), -1)), ElementsAre(APPLIED, APPLIED));
  EXPECT_EQ(ps.Now(), Floats(6, 1));
}

TEST_F(EngineTest, ARepeatedPushAppliesOnce) {
  EngineDriver ps = Make();
  ps.Push(ps.PushHeader(1, 0, 0), -1);
  EXPECT_THAT(ps.Outcomes(ps.Push(ps.PushHeader(1, 0, 0), -1)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps.Now(), Floats(6, 1));
}

TEST_F(EngineTest, ABatchComputedAgainBySomeoneElseAppliesOnce) {
  EngineDriver ps = Make();
  ps.Push(ps.PushHeader(1, 0, 0), -1);
  EXPECT_THAT(ps.Outcomes(ps.Push(ps.PushHeader(2, 0, 0), -5)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps.Now(), Floats(6, 1));
}

TEST_F(EngineTest, APushCutOffBetweenItsPartsIsCompletedByItsRepeat) {
  EngineDriver ps = Make();
  const RequestHeader header = ps.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps.engine().BeginPush(header, 900, 900, &ps.effects()));
  ps.PushPart(header, 1, -1);
  EXPECT_THAT(ps.Outcomes(ps.Push(header, -1)), ElementsAre(APPLIED, DUPLICATE));
  EXPECT_EQ(ps.Now(), Floats(6, 1));
}

TEST_F(EngineTest, APushOfARetiredLeaseIsADuplicate) {
  EngineDriver ps = Make();
  PsCommand command = ps.Command();
  command.mutable_retire_leases()->add_leases()->set_lease(0);
  ASSERT_TRUE(ps.Execute(command).ok());
  ASSERT_TRUE(ps.Execute(command).ok());
  EXPECT_THAT(ps.Outcomes(ps.Push(ps.PushHeader(1, 0, 7), -1)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_EQ(ps.Now(), Floats(6, 0));
}

TEST_F(EngineTest, ALeaseOfAnotherEpochIsAnotherLease) {
  EngineDriver ps = Make();
  RequestHeader header = ps.PushHeader(1, 0, 0);
  ps.Push(header, -1);
  header.mutable_key()->set_epoch(1);
  EXPECT_THAT(ps.Outcomes(ps.Push(header, -1)), ElementsAre(APPLIED, APPLIED));
}

// FAILURES B21.
TEST_F(EngineTest, ANonFinitePartIsRefusedByNameAndChangesNothing) {
  EngineDriver ps = Make();
  const RequestHeader header = ps.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps.engine().BeginPush(header, 1, 1, &ps.effects()));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto result = ps.engine().ApplyPart(header, 1, 0, Floats({1.0f, bad, 2.0f}));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("shard 1 of w: gradient element 1 is "));
  }
  EXPECT_EQ(ps.Now(), Floats(6, 0));
  EXPECT_THAT(ps.Outcomes(ps.Push(header, -1)), ElementsAre(APPLIED, APPLIED));
}

TEST_F(EngineTest, APartOfTheWrongSizeIsRefused) {
  EngineDriver ps = Make();
  const auto result = ps.engine().ApplyPart(ps.PushHeader(1, 0, 0), 0, 0, Floats(4, 1));
  EXPECT_EQ(result.status().message(), "shard 0 of w: expected 3 gradient elements, got 4");
  EXPECT_EQ(ps.engine().ApplyPart(ps.PushHeader(1, 0, 0), 7, 0, Floats(3, 1)).status().message(),
            "shard 7 isn't on this ps");
}

// ---- fences
// ----------------------------------------------------------------------------------------------------------

struct BadHeader {
  void (*change)(RequestHeader*);
  ReplyCode code;
  const char* message;
};

TEST_F(EngineTest, BadHeadersOfPushesAreAnsweredByKind) {
  const BadHeader bad[] = {
      {[](RequestHeader* h) { h->set_protocol_version(99); }, REFUSED, "protocol 99, this ps protocol 1"},
      {[](RequestHeader* h) { h->set_generation(0); }, STALE_GENERATION, "generation 0, term 1"},
      {[](RequestHeader* h) { h->set_term(0); }, STALE_GENERATION, "generation 1, term 0"},
      {[](RequestHeader* h) { h->set_generation(2); }, UNAVAILABLE, "generation 2 isn't loaded yet"},
      {[](RequestHeader* h) { h->set_map_version(2); }, STALE_MAP, "shard map 2, this ps has 1"},
      {[](RequestHeader* h) { h->set_map_version(0); }, STALE_MAP, "shard map 0, this ps has 1"},
      {[](RequestHeader* h) { h->set_incarnation(77); }, FENCED, "incarnation 77 isn't in the clock table"},
      {[](RequestHeader* h) { h->set_clock(-1); }, REFUSED, "clock: expected 0 to"},
      {[](RequestHeader* h) { h->set_step_clock(2); }, REFUSED, "step_clock: expected 0 to 1, got 2"},
      {[](RequestHeader* h) { h->mutable_key()->set_lease(4); }, REFUSED, "lease of the batch key: expected 0 to 3"},
      {[](RequestHeader* h) { h->mutable_key()->set_batch(50000); }, REFUSED, "batch of the batch key: expected 0 to"},
      {[](RequestHeader* h) { h->mutable_key()->set_epoch(-1); }, REFUSED, "epoch of the batch key: expected 0 to"},
      {[](RequestHeader* h) { h->set_example_count(0); }, REFUSED, "example_count: expected 1 to"},
      {[](RequestHeader* h) { h->set_cut(uint64_t{1} << 60); }, REFUSED, "the push is stamped with cut"},
  };
  for (const BadHeader& header : bad) {
    EngineDriver ps = Make();
    RequestHeader changed = ps.PushHeader(1, 0, 0);
    header.change(&changed);
    const RequestToken token = ps.Push(changed, -1);
    EXPECT_EQ(ps.PushCode(token), header.code) << header.message;
    EXPECT_THAT(ps.AnsweredPush(token)->header.message(), HasSubstr(header.message));
    EXPECT_EQ(ps.Now(), Floats(6, 0)) << header.message;
  }
}

TEST_F(EngineTest, BadPullsAreAnsweredByKind) {
  EngineDriver ps = Make();
  RequestHeader header = ps.Header(1, 0);
  EXPECT_EQ(ps.PullCode(ps.Pull(header, {2})), REFUSED);
  EXPECT_EQ(ps.PullCode(ps.Pull(header, {1, 1})), REFUSED);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(9, 0))), FENCED);
  header.set_generation(0);
  EXPECT_EQ(ps.PullCode(ps.Pull(header)), STALE_GENERATION);
}

TEST_F(EngineTest, WithoutShardsItIsUnavailable) {
  EngineDriver ps(NewSingleThreadEngine({}), {});
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 0))), UNAVAILABLE);
  EXPECT_EQ(ps.PushCode(ps.Push(ps.PushHeader(1, 0, 0), 1)), UNAVAILABLE);
  EXPECT_EQ(ps.AnnounceCut(11).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(EngineTest, EvictedAndParkedOnesAreFencedAndAParkedOneMayComeBack) {
  EngineDriver ps = Make();
  ASSERT_TRUE(ps.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  ASSERT_TRUE(ps.ChangeMember(2, MemberChange::PARKED, 2).ok());
  EXPECT_EQ(ps.PushCode(ps.Push(ps.PushHeader(1, 0, 0), -1)), FENCED);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(2, 0))), FENCED);
  EXPECT_EQ(ps.Join(1, 3), -1);
  EXPECT_EQ(ps.Join(2, 3), 0);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(2, 0))), OK);
}

TEST_F(EngineTest, AnEvictionBetweenPartsAndEndIsAnsweredFenced) {
  EngineDriver ps = Make();
  const RequestHeader header = ps.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps.engine().BeginPush(header, 50, 50, &ps.effects()));
  ps.PushPart(header, 0, -1);
  ASSERT_TRUE(ps.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  ps.engine().EndPush(header, 50, 50, {}, &ps.effects());
  EXPECT_EQ(ps.PushCode(50), FENCED);
  EXPECT_THAT(ps.Outcomes(ps.Push(ps.PushHeader(2, 0, 0), -1)), ElementsAre(DUPLICATE, APPLIED));
}

TEST_F(EngineTest, CommandsOfAnotherIncarnationOrAnOlderChiefAreRefused) {
  EngineDriver ps = Make();
  PsCommand command = ps.Command();
  command.mutable_shut_down();
  EXPECT_TRUE(ps.Execute(command).ok());
  command.set_incarnation(5);
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kFailedPrecondition);
  command.set_incarnation(kTestPsIncarnation);
  command.set_term(3);
  EXPECT_TRUE(ps.Execute(command).ok());
  command.set_term(2);
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kAborted);
  command.set_term(3);
  command.set_generation(0);
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kAborted);
  command.set_generation(1);
  command.clear_command();
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(EngineTest, AMemberChangeWithoutAStateIsRefusedWhole) {
  EngineDriver ps = Make();
  PsCommand command = ps.Command();
  command.mutable_set_membership()->add_changes()->set_incarnation(8);
  command.mutable_set_membership()->mutable_changes(0)->set_state(MemberChange::JOINED);
  command.mutable_set_membership()->add_changes()->set_incarnation(9);
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(8, 0))), FENCED);
}

// ---- pulls
// -----------------------------------------------------------------------------------------------------------

TEST_F(EngineTest, APullHasTheShardsAskedForInTheirOrder) {
  EngineDriver ps = Make();
  ps.Push(ps.PushHeader(1, 0, 0), -1);
  const PullAnswer* answer = ps.AnsweredPull(ps.Pull(ps.Header(1, 1), {1, 0}));
  ASSERT_NE(answer, nullptr);
  ASSERT_EQ(answer->shards.size(), 2);
  EXPECT_EQ(answer->shards[0].shard, 1);
  EXPECT_EQ(answer->shards[0].version, 1);
  EXPECT_EQ(Values(answer->shards[1].parameters), Floats(3, 1));
}

TEST_F(EngineTest, APullThatIsStillBeingSentKeepsItsVersion) {
  EngineDriver ps = Make();
  const RequestToken token = ps.Pull(ps.Header(1, 0));
  for (int32_t batch = 0; batch < 5; ++batch) ps.Push(ps.PushHeader(2, batch, batch), -1);
  EXPECT_EQ(Values(ps.AnsweredPull(token)->shards[0].parameters), Floats(3, 0));
  EXPECT_EQ(ps.Now(), Floats(6, 5));
}

// FAILURES B19: s = 1, A at 3, B at 1: A waits until B reaches 2, no earlier, no later, and reads its own push.
TEST_F(EngineTest, SspWaitsForExactlyTheBound) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  ps.Pull(ps.Header(2, 1));
  ps.Push(ps.PushHeader(1, 2, 0), -1);
  const RequestToken token = ps.Pull(ps.Header(1, 3));
  EXPECT_EQ(ps.PullCode(token), REPLY_CODE_UNSPECIFIED);
  ps.Push(ps.PushHeader(2, 1, 1), -1);
  EXPECT_EQ(ps.PullCode(token), REPLY_CODE_UNSPECIFIED);
  ps.Pull(ps.Header(2, 2));
  ASSERT_EQ(ps.PullCode(token), OK);
  EXPECT_EQ(ps.AnsweredPull(token)->header.staleness_clocks(), 1);
  EXPECT_EQ(Values(ps.AnsweredPull(token)->shards[0].parameters), Floats(3, 2));
}

TEST_F(EngineTest, APrefetchedPullIsAdmittedAtItsStepsClock) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  RequestHeader header = ps.Header(1, 0);
  header.set_step_clock(1);
  EXPECT_EQ(ps.PullCode(ps.Pull(header)), OK);
  header.set_clock(1);
  header.set_step_clock(2);
  EXPECT_EQ(ps.PullCode(ps.Pull(header)), REPLY_CODE_UNSPECIFIED);
}

// FAILURES B18.
TEST_F(EngineTest, EvictionWakesWaiters) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  const RequestToken waiter = ps.Pull(ps.Header(1, 5));
  EXPECT_EQ(ps.PullCode(waiter), REPLY_CODE_UNSPECIFIED);
  ASSERT_TRUE(ps.ChangeMember(2, MemberChange::EVICTED, 2).ok());
  EXPECT_EQ(ps.PullCode(waiter), OK);
}

TEST_F(EngineTest, ParkingWakesWaiters) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  const RequestToken waiter = ps.Pull(ps.Header(1, 5));
  ASSERT_TRUE(ps.ChangeMember(2, MemberChange::PARKED, 2).ok());
  EXPECT_EQ(ps.PullCode(waiter), OK);
}

TEST_F(EngineTest, TheEvictedOnesOwnPullIsFenced) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  const RequestToken waiter = ps.Pull(ps.Header(1, 5));
  ASSERT_TRUE(ps.ChangeMember(1, MemberChange::EVICTED, 2).ok());
  EXPECT_EQ(ps.PullCode(waiter), FENCED);
}

TEST_F(EngineTest, AJoinerDoesNotHoldBackTheOthers) {
  EngineDriver ps = Make("ssp { staleness: 1 }");
  ps.Pull(ps.Header(2, 7));
  ps.Pull(ps.Header(1, 8));
  EXPECT_EQ(ps.Join(3), 8);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 8))), OK);
}

TEST_F(EngineTest, ARepeatedPullReplacesTheWaitingOne) {
  EngineDriver ps = Make("ssp { staleness: 0 }");
  ps.engine().Pull(ps.Header(1, 1), 7, {}, 100, &ps.effects());
  ps.engine().Pull(ps.Header(1, 1), 7, {}, 101, &ps.effects());
  ps.Pull(ps.Header(2, 1));
  EXPECT_EQ(ps.PullCode(100), REPLY_CODE_UNSPECIFIED);
  EXPECT_EQ(ps.PullCode(101), OK);
}

TEST_F(EngineTest, AForgottenPullIsNotAnswered) {
  EngineDriver ps = Make("ssp { staleness: 0 }");
  const RequestToken token = ps.Pull(ps.Header(1, 1));
  ps.engine().Forget({token});
  ps.Pull(ps.Header(2, 1));
  EXPECT_EQ(ps.PullCode(token), REPLY_CODE_UNSPECIFIED);
}

TEST_F(EngineTest, WaitingPullsAreBounded) {
  EngineTestJob job;
  job.consistency = "ssp { staleness: 0 }";
  EngineOptions options;
  options.max_waiting_pulls = 2;
  EngineDriver ps(NewSingleThreadEngine(options), job);
  ps.Install();
  for (const uint64_t worker : {1, 2, 3, 4}) ps.Join(worker);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 1))), REPLY_CODE_UNSPECIFIED);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(2, 1))), REPLY_CODE_UNSPECIFIED);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(3, 1))), UNAVAILABLE);
}

TEST_F(EngineTest, StalenessIsCountedByEpochAndInTotal) {
  EngineDriver ps = Make("ssp { staleness: 3 }");
  ps.Pull(ps.Header(1, 2));
  ps.Push(ps.PushHeader(1, 2, 0), -1);
  RequestHeader next = ps.PushHeader(1, 3, 1);
  next.mutable_key()->set_epoch(1);
  ps.Push(next, -1);
  const auto first = ps.AnnounceCut(11, 0);
  EXPECT_EQ(first->staleness().clocks_max(), 2);
  EXPECT_EQ(first->staleness().version_counts(0), 2);
  EXPECT_EQ(first->staleness().version_sum(), 0);
  const auto second = ps.AnnounceCut(12, 1);
  EXPECT_EQ(second->staleness().clocks_max(), 0);
  EXPECT_EQ(second->staleness().version_counts(1), 2);
  const StalenessStatistics total = ps.engine().Staleness();
  EXPECT_EQ(total.clocks_max(), 2);
  EXPECT_EQ(total.version_sum(), 2);
  EXPECT_EQ(total.pushes(), 4);
}

// ---- installing
// ------------------------------------------------------------------------------------------------------

TEST_F(EngineTest, ARepeatedInstallChangesNothing) {
  EngineDriver ps = Make();
  ps.Push(ps.PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps.AnnounceCut(15).ok());
  const auto again = ps.Execute(ps.InstallCommand());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->cut(), 15);
  EXPECT_EQ(ps.Now(), Floats(6, 1));
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 1))), OK);
}

TEST_F(EngineTest, AnInstallThatIsWrongChangesNothing) {
  EngineDriver ps(NewSingleThreadEngine({}), {});
  const auto refused = [&ps](const auto& change) {
    PsCommand command = ps.InstallCommand();
    change(command.mutable_install_shards());
    return ps.Execute(command).status().code();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_map()->mutable_ps(0)->set_incarnation(5); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_map()->mutable_shards(1)->set_row_end(9); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->set_leases_per_epoch(0); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->set_batches_per_lease(int64_t{1} << 40); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_job()->clear_optimizer(); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_job()->clear_consistency(); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_map()->mutable_variables(0)->clear_initializer(); }), invalid);
  EXPECT_EQ(refused([](InstallShards* i) { i->mutable_restore(); }), invalid);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 0))), UNAVAILABLE);
  EXPECT_TRUE(ps.Execute(ps.InstallCommand()).ok());
}

TEST_F(EngineTest, AnotherMapOfTheSameGenerationIsRefused) {
  EngineDriver ps = Make();
  PsCommand command = ps.InstallCommand();
  command.mutable_install_shards()->mutable_map()->set_version(2);
  EXPECT_EQ(ps.Execute(command).status().code(), absl::StatusCode::kFailedPrecondition);
}

// FAILURES B34: a ps that owns nothing takes part all the same.
TEST_F(EngineTest, APsWithoutShardsAnswersEmpty) {
  EngineDriver ps(NewSingleThreadEngine({}), {});
  PsCommand command = ps.InstallCommand();
  ShardMap* map = command.mutable_install_shards()->mutable_map();
  PsAddress* other = map->add_ps();
  other->set_ps_index(1);
  other->set_address("ps:2");
  other->set_incarnation(1001);
  for (ShardPlacement& shard : *map->mutable_shards()) shard.set_ps_index(1);
  ASSERT_TRUE(ps.Execute(command).ok()) << ps.Execute(command).status();
  ps.Join(1);
  EXPECT_EQ(ps.PullCode(ps.Pull(ps.Header(1, 0))), OK);
  const RequestHeader push = ps.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps.engine().BeginPush(push, 5, 5, &ps.effects()));
  ps.engine().EndPush(push, 5, 5, {}, &ps.effects());
  EXPECT_EQ(ps.PushCode(5), OK);
  EXPECT_FALSE(ps.engine().GetFork(10).ok());
  ASSERT_TRUE(ps.AnnounceCut(11).ok());
  EXPECT_TRUE(ps.engine().GetFork(11).ok());
}

TEST_F(EngineTest, ARollbackRestoresTheForkAndForgetsEveryone) {
  EngineDriver ps = Make("ssp { staleness: 0 }");
  ps.Push(ps.PushHeader(1, 0, 0), -1);
  ASSERT_TRUE(ps.AnnounceCut(11).ok());
  std::vector<ShardSnapshot> fork = ps.engine().GetFork(11).value();
  ps.Push(ps.PushHeader(1, 1, 1), -1);
  const RequestToken waiter = ps.Pull(ps.Header(1, 2));
  PsCommand command = ps.InstallCommand();
  command.set_generation(2);
  command.mutable_install_shards()->set_cut(20);
  const auto restored = ps.engine().Restore(command, fork);
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_EQ(restored->cut(), 20);
  EXPECT_EQ(ps.Now(), Floats(6, 1));
  EXPECT_EQ(ps.PushCode(ps.Push(ps.PushHeader(1, 1, 1), -1)), STALE_GENERATION);
  RequestHeader again = ps.PushHeader(1, 1, 1);
  again.set_generation(2);
  EXPECT_EQ(ps.PushCode(ps.Push(again, -1)), FENCED);
  PsCommand join = ps.Command();
  join.set_generation(2);
  join.mutable_set_membership()->add_changes()->set_incarnation(3);
  join.mutable_set_membership()->mutable_changes(0)->set_state(MemberChange::JOINED);
  ASSERT_TRUE(ps.Execute(join).ok());
  EXPECT_EQ(ps.PullCode(waiter), STALE_GENERATION);
  again.set_incarnation(3);
  EXPECT_THAT(ps.Outcomes(ps.Push(again, -1)), ElementsAre(APPLIED, APPLIED));
  again.mutable_key()->set_batch(0);
  EXPECT_THAT(ps.Outcomes(ps.Push(again, -1)), ElementsAre(DUPLICATE, DUPLICATE));
  EXPECT_TRUE(ps.engine().Restore(command, {}).ok());
}

TEST_F(EngineTest, APartThatOutlivesARollbackIsNotApplied) {
  EngineDriver ps = Make();
  const RequestHeader header = ps.PushHeader(1, 0, 0);
  ASSERT_TRUE(ps.engine().BeginPush(header, 5, 5, &ps.effects()));
  PsCommand command = ps.InstallCommand();
  command.set_generation(2);
  ASSERT_TRUE(ps.Execute(command).ok());
  EXPECT_EQ(ps.PushPart(header, 0, -1).outcome(), MOVED);
  EXPECT_EQ(ps.Now(), Floats(6, 0));
  ps.engine().EndPush(header, 5, 5, {}, &ps.effects());
  EXPECT_EQ(ps.PushCode(5), STALE_GENERATION);
}

TEST_F(EngineTest, ARestoreMustHaveExactlyTheMapsShards) {
  EngineDriver ps = Make();
  ASSERT_TRUE(ps.AnnounceCut(11).ok());
  const std::vector<ShardSnapshot> fork = ps.engine().GetFork(11).value();
  PsCommand command = ps.InstallCommand();
  command.set_generation(2);
  EXPECT_EQ(ps.engine().Restore(command, {fork[0]}).status().message(), "shard 1 of w wasn't restored");
  EXPECT_EQ(ps.engine().Restore(command, {fork[0], fork[0]}).status().message(), "shard 0 was restored twice");
  std::vector<ShardSnapshot> more = fork;
  more.push_back(fork[1]);
  more.back().shard = 2;
  EXPECT_EQ(ps.engine().Restore(command, more).status().message(), "shard 2 was restored but isn't this ps's");
}

}  // namespace
}  // namespace lagrange

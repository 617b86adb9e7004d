#include "worker/core/step_loop.h"

#include "worker/core/step_loop_testing.h"

namespace lagrange {
namespace {

StepLoopOptions NoPrefetch() {
  StepLoopOptions options;
  options.prefetch = false;
  return options;
}

TEST(StepLoop, PullAddressesEveryPsAtItsClock) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  ASSERT_EQ(pulls.size(), 2u);
  EXPECT_EQ(pulls[0].ps_index, 0);
  EXPECT_EQ(pulls[1].ps_index, 1);
  for (const SendPull& pull : pulls) {
    EXPECT_EQ(pull.header.clock(), 0);
    EXPECT_EQ(pull.header.step_clock(), 0);
    EXPECT_EQ(pull.header.incarnation(), 7u);
    EXPECT_EQ(pull.header.term(), 1u);
    EXPECT_EQ(pull.header.generation(), 1u);
    EXPECT_EQ(pull.header.map_version(), 1u);
    EXPECT_EQ(pull.header.cut(), 0u);
  }
}

TEST(StepLoop, PsWithoutShardsIsAddressedToo) {
  StepLoopDriver driver(NoPrefetch());
  driver.Start();
  driver.Register();
  AcquireWorkResponse response = driver.LeaseAnswer(0);
  *response.mutable_shard_map() = driver.MapOf(1, 0);
  driver.AnswerAcquire(response);
  EXPECT_EQ(driver.Take<SendPull>().size(), 2u);
}

TEST(StepLoop, MapIsUsedBeforeTheFirstPull) {
  StepLoopDriver driver;
  driver.Join();
  size_t map_at = 99, pull_at = 99;
  for (size_t i = driver.effects.size(); i-- > 0;) {
    if (std::holds_alternative<UseShardMap>(driver.effects[i])) map_at = i;
    if (std::holds_alternative<SendPull>(driver.effects[i])) pull_at = i;
  }
  EXPECT_LT(map_at, pull_at);
  EXPECT_LT(pull_at, driver.effects.size());
}

TEST(StepLoop, ComputeWaitsForEveryPs) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  driver.Answer(pulls[1], driver.Reply(OK));
  EXPECT_FALSE(driver.Has<StartCompute>());
  driver.Answer(pulls[0], driver.Reply(OK));
  EXPECT_EQ(KeyText(driver.TakeOne<StartCompute>().key), "0/0/0");
}

TEST(StepLoop, PushCarriesKeyExamplesAndTheLargestCutOfThePulls) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join(2);
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  driver.Answer(pulls[0], driver.Reply(OK, 9));
  driver.Answer(pulls[1], driver.Reply(OK, 4));
  driver.Computed();
  const std::vector<SendPush> pushes = driver.Take<SendPush>();
  ASSERT_EQ(pushes.size(), 2u);
  for (const SendPush& push : pushes) {
    EXPECT_EQ(push.header.cut(), 9u);
    EXPECT_EQ(KeyText(push.header.key()), "0/2/0");
    EXPECT_EQ(push.header.example_count(), 10);
    EXPECT_EQ(push.header.step_clock(), 0);
    EXPECT_EQ(push.buffer, pulls[0].buffer);
    EXPECT_TRUE(push.shards.empty());
  }
}

TEST(StepLoop, ClockCountsStepsThatEveryPsAcknowledged) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.Computed();
  const std::vector<SendPush> pushes = driver.Take<SendPush>();
  driver.Answer(pushes[0], driver.Reply(OK));
  EXPECT_EQ(driver.loop->clock(), 0);
  EXPECT_FALSE(driver.Has<SendPull>());
  driver.Answer(pushes[1], driver.Reply(OK));
  EXPECT_EQ(driver.loop->clock(), 1);
  const SendPull next = driver.Take<SendPull>().front();
  EXPECT_EQ(next.header.clock(), 1);
  EXPECT_EQ(next.header.step_clock(), 1);
}

TEST(StepLoop, ClockStartsWhereTheGrantSays) {
  StepLoopDriver driver(NoPrefetch());
  driver.Start();
  driver.Register();
  AcquireWorkResponse response = driver.LeaseAnswer(0);
  response.mutable_lease()->set_start_clock(41);
  *response.mutable_shard_map() = driver.MapOf(1);
  driver.AnswerAcquire(response);
  EXPECT_EQ(driver.Take<SendPull>().front().header.step_clock(), 41);
}

TEST(StepLoop, StartClockBelowTheOwnIsIgnored) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join(3);
  driver.Step();
  driver.AnswerReport({ACCEPTED});
  AcquireWorkResponse response = driver.LeaseAnswer(0);
  response.mutable_lease()->set_start_clock(0);
  driver.AnswerAcquire(response);
  EXPECT_EQ(driver.loop->clock(), 1);
}

TEST(StepLoop, SettledBatchesAreNotComputedAgain) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join(0, {0, 2});
  driver.AnswerAll<SendPull>();
  EXPECT_EQ(KeyText(driver.TakeOne<StartCompute>().key), "0/0/1");
}

TEST(StepLoop, PrefetchGoesOutWhileTheStepComputes) {
  StepLoopDriver driver;
  driver.Join();
  const int step_buffer = driver.effects.empty() ? -1 : 0;
  std::vector<SendPull> pulls = driver.Take<SendPull>();
  for (const SendPull& pull : pulls) {
    EXPECT_EQ(pull.buffer, step_buffer);
    driver.Answer(pull, driver.Reply(OK));
  }
  pulls = driver.Take<SendPull>();
  ASSERT_EQ(pulls.size(), 2u);
  for (const SendPull& pull : pulls) {
    EXPECT_EQ(pull.header.clock(), 0);
    EXPECT_EQ(pull.header.step_clock(), 1);
    EXPECT_EQ(pull.buffer, 1 - step_buffer);
  }
}

TEST(StepLoop, PushGoesToAPsOnlyAfterItsPrefetchIsAnswered) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  const std::vector<SendPull> prefetch = driver.Take<SendPull>();
  driver.Computed();
  EXPECT_FALSE(driver.Has<SendPush>());
  driver.Answer(prefetch[1], driver.Reply(OK));
  EXPECT_EQ(driver.TakeOne<SendPush>().ps_index, 1);
  driver.Answer(prefetch[0], driver.Reply(OK));
  EXPECT_EQ(driver.TakeOne<SendPush>().ps_index, 0);
}

TEST(StepLoop, PrefetchedParametersServeTheNextStep) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.AnswerAll<SendPull>();
  driver.Computed();
  driver.AnswerAll<SendPush>();
  const StartCompute next = driver.TakeOne<StartCompute>();
  EXPECT_EQ(KeyText(next.key), "0/0/1");
  EXPECT_EQ(next.buffer, 1);
  for (const SendPull& pull : driver.Take<SendPull>()) {
    EXPECT_EQ(pull.header.step_clock(), 2);
    EXPECT_EQ(pull.header.clock(), 1);
    EXPECT_EQ(pull.buffer, 0);
  }
}

TEST(StepLoop, NothingIsPrefetchedWithoutTheOption) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  EXPECT_TRUE(driver.Has<StartCompute>());
  EXPECT_FALSE(driver.Has<SendPull>());
}

TEST(StepLoop, NothingIsPrefetchedForAnotherLease) {
  StepLoopDriver driver;
  driver.Join(3);
  driver.AnswerAll<SendPull>();
  driver.AnswerAcquire(driver.LeaseAnswer(0));
  EXPECT_FALSE(driver.Has<SendPull>());
  driver.Computed();
  driver.AnswerAll<SendPush>();
  EXPECT_EQ(driver.Take<SendPull>().front().header.step_clock(), 1);
}

TEST(StepLoop, StampOfAPrefetchedStepIsOfItsOwnPull) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  for (const SendPull& pull : driver.Take<SendPull>()) driver.Answer(pull, driver.Reply(OK, 5));
  driver.Computed();
  EXPECT_EQ(driver.Take<SendPush>().front().header.cut(), 1u);
}

TEST(StepLoop, BadBatchIsSkippedAtTheSameClock) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.Computed(absl::InvalidArgumentError("gradient element 5 is nan"));
  EXPECT_FALSE(driver.Has<SendPush>());
  EXPECT_EQ(driver.Take<SendPull>().front().header.step_clock(), 0);
  EXPECT_EQ(driver.loop->clock(), 0);
  driver.AdvanceBy(absl::Milliseconds(200));
  const CallReportBatches report = driver.TakeOne<CallReportBatches>();
  ASSERT_EQ(report.request.skipped_size(), 1);
  EXPECT_EQ(report.request.done_size(), 0);
  EXPECT_EQ(report.request.skipped(0).reason(), "gradient element 5 is nan");
  EXPECT_EQ(report.request.skipped(0).example_count(), 10);
  EXPECT_EQ(KeyText(report.request.skipped(0).key()), "0/0/0");
}

TEST(StepLoop, PrefetchOutlivesASkippedBatch) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.AnswerAll<SendPull>();
  driver.Computed(absl::InvalidArgumentError("gradient element 5 is nan"));
  const StartCompute next = driver.TakeOne<StartCompute>();
  EXPECT_EQ(KeyText(next.key), "0/0/1");
  EXPECT_EQ(next.buffer, 1);
}

TEST(StepLoop, LateShardMakesTheBatchComputeAgainOneClockOn) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.Computed();
  const std::vector<SendPush> pushes = driver.Take<SendPush>();
  ReplyHeader late = driver.Reply(OK);
  late.add_results()->set_outcome(LATE);
  driver.Answer(pushes[0], late);
  driver.Answer(pushes[1], driver.Reply(OK));
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  ASSERT_EQ(pulls.size(), 2u);
  EXPECT_EQ(pulls[0].header.step_clock(), 1);
  EXPECT_EQ(pulls[0].header.clock(), 1);
  for (const SendPull& pull : pulls) driver.Answer(pull, driver.Reply(OK));
  EXPECT_EQ(KeyText(driver.TakeOne<StartCompute>().key), "0/0/0");
  driver.AdvanceBy(absl::Seconds(1));
  EXPECT_FALSE(driver.Has<CallReportBatches>());
}

TEST(StepLoop, EvaluationReadsThePinnedCutIntoBufferZero) {
  StepLoopDriver driver;
  driver.Start();
  driver.Register();
  AcquireWorkResponse response;
  response.set_term(1);
  response.mutable_evaluation()->set_cut(12);
  response.mutable_evaluation()->set_record_count(20);
  *response.mutable_shard_map() = driver.MapOf(1);
  driver.AnswerAcquire(response);
  for (const SendPull& pull : driver.Take<SendPull>()) {
    EXPECT_EQ(pull.header.pinned_cut(), 12u);
    EXPECT_EQ(pull.buffer, 0);
    driver.Answer(pull, driver.Reply(OK));
  }
  EXPECT_EQ(driver.TakeOne<StartEvaluation>().task.record_count(), 20);
  driver.loop->OnEvaluated({20, 17, 3.5, absl::OkStatus()}, driver.now, &driver.effects);
  const CallReportEvaluation report = driver.TakeOne<CallReportEvaluation>();
  EXPECT_EQ(report.request.task().cut(), 12u);
  EXPECT_EQ(report.request.correct_count(), 17);
  EXPECT_EQ(report.request.example_count(), 20);
  EXPECT_EQ(report.request.loss_sum(), 3.5);
  EXPECT_FALSE(report.request.abandoned());
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
}

TEST(StepLoop, EvaluationOfAFreedCutIsAbandoned) {
  StepLoopDriver driver;
  driver.Start();
  driver.Register();
  AcquireWorkResponse response;
  response.set_term(1);
  response.mutable_evaluation()->set_cut(12);
  *response.mutable_shard_map() = driver.MapOf(1);
  driver.AnswerAcquire(response);
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  driver.Answer(pulls[0], driver.Reply(NO_SUCH_CUT));
  EXPECT_TRUE(driver.TakeOne<CallReportEvaluation>().request.abandoned());
  driver.Answer(pulls[1], driver.Reply(OK));
  EXPECT_FALSE(driver.Has<StartEvaluation>());
}

TEST(Lookahead, FollowsConsistencyAndJob) {
  JobSpec job;
  job.set_prefetch(true);
  job.mutable_consistency()->mutable_asp();
  EXPECT_TRUE(LookaheadFor(job).prefetch);
  EXPECT_TRUE(LookaheadFor(job).acquire_ahead);
  job.mutable_consistency()->mutable_ssp()->set_staleness(1);
  EXPECT_TRUE(LookaheadFor(job).prefetch);
  job.mutable_consistency()->mutable_ssp()->set_staleness(0);
  EXPECT_FALSE(LookaheadFor(job).prefetch);
  EXPECT_TRUE(LookaheadFor(job).acquire_ahead);
  job.mutable_consistency()->mutable_bsp();
  EXPECT_FALSE(LookaheadFor(job).prefetch);
  EXPECT_FALSE(LookaheadFor(job).acquire_ahead);
  job.mutable_consistency()->mutable_asp();
  job.set_prefetch(false);
  EXPECT_FALSE(LookaheadFor(job).prefetch);
}

}  // namespace
}  // namespace lagrange

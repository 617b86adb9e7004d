// The step loop under loss, repetition and reordering, fences, moved shards, new maps.

#include "worker/core/step_loop.h"
#include "worker/core/step_loop_testing.h"

namespace lagrange {
namespace {

StepLoopOptions NoPrefetch() {
  StepLoopOptions options;
  options.prefetch = false;
  return options;
}

// The first step computes no more: its pushes are on their way.
std::vector<SendPush> PushFirstStep(StepLoopDriver* driver) {
  driver->Join();
  driver->AnswerAll<SendPull>();
  driver->Computed();
  return driver->Take<SendPush>();
}

TEST(StepLoopRecovery, UnansweredPullIsSentAgainUnderItsId) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> first = driver.Take<SendPull>();
  driver.Answer(first[0], driver.Reply(OK));
  driver.AdvanceBy(absl::Seconds(20));
  const SendPull again = driver.TakeOne<SendPull>();
  EXPECT_EQ(again.ps_index, 1);
  EXPECT_EQ(again.request_id, first[1].request_id);
}

TEST(StepLoopRecovery, UnansweredPushIsSentAgainUnderItsIdAndKey) {
  StepLoopDriver driver(NoPrefetch());
  const std::vector<SendPush> first = PushFirstStep(&driver);
  driver.Answer(first[1], driver.Reply(OK));
  driver.AdvanceBy(absl::Seconds(20));
  const SendPush again = driver.TakeOne<SendPush>();
  EXPECT_EQ(again.request_id, first[0].request_id);
  EXPECT_EQ(KeyText(again.header.key()), "0/0/0");
  EXPECT_EQ(again.header.cut(), first[0].header.cut());
}

TEST(StepLoopRecovery, RepeatedPushReplyCountsOnce) {
  StepLoopDriver driver(NoPrefetch());
  const std::vector<SendPush> pushes = PushFirstStep(&driver);
  driver.Answer(pushes[0], driver.Reply(OK));
  driver.Answer(pushes[0], driver.Reply(OK));
  EXPECT_EQ(driver.loop->clock(), 0);
  driver.Answer(pushes[1], driver.Reply(OK));
  driver.Answer(pushes[1], driver.Reply(OK));
  EXPECT_EQ(driver.loop->clock(), 1);
}

TEST(StepLoopRecovery, PullReplyOfAnEarlierStepIsIgnored) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> first = driver.Take<SendPull>();
  for (const SendPull& pull : first) driver.Answer(pull, driver.Reply(OK));
  driver.Computed();
  driver.AnswerAll<SendPush>();
  for (const SendPull& pull : first) driver.Answer(pull, driver.Reply(OK));
  EXPECT_FALSE(driver.Has<StartCompute>());
}

TEST(StepLoopRecovery, AnswerUnderAnUnknownCallIsIgnored) {
  StepLoopDriver driver;
  driver.Join();
  const size_t before = driver.effects.size();
  driver.loop->OnAcquireWorkResponse(12345, driver.LeaseAnswer(1), driver.now, &driver.effects);
  driver.loop->OnReportBatchesResponse(12345, {}, driver.now, &driver.effects);
  driver.loop->OnLeaveResponse(12345, driver.now, &driver.effects);
  EXPECT_EQ(driver.effects.size(), before);
}

TEST(StepLoopRecovery, RepeatedGrantIsTakenOnce) {
  StepLoopDriver driver(NoPrefetch());
  driver.Start();
  driver.Register();
  const uint64_t call_id = driver.TakeOne<CallAcquireWork>().call_id;
  AcquireWorkResponse response = driver.LeaseAnswer(3);
  *response.mutable_shard_map() = driver.MapOf(1);
  for (int i = 0; i < 2; ++i) driver.loop->OnAcquireWorkResponse(call_id, response, driver.now, &driver.effects);
  driver.Step();
  driver.AnswerReport({ACCEPTED});
  EXPECT_FALSE(driver.Has<SendPull>());
}

TEST(StepLoopRecovery, ReconnectedPsIsAskedAgainAtOnce) {
  StepLoopDriver driver(NoPrefetch());
  const std::vector<SendPush> pushes = PushFirstStep(&driver);
  driver.loop->OnPsReconnected(0, driver.now, &driver.effects);
  EXPECT_EQ(driver.TakeOne<SendPush>().request_id, pushes[0].request_id);
}

TEST(StepLoopRecovery, PsThatIsNotReadyIsAskedAgainAfterAPause) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  driver.Answer(pulls[0], driver.Reply(UNAVAILABLE));
  EXPECT_FALSE(driver.Has<SendPull>());
  driver.AdvanceBy(absl::Milliseconds(100));
  EXPECT_EQ(driver.TakeOne<SendPull>().request_id, pulls[0].request_id);
}

class DropsAllAndRegisters : public testing::TestWithParam<ReplyCode> {};

TEST_P(DropsAllAndRegisters, OnAPushReply) {
  StepLoopDriver driver(NoPrefetch());
  const std::vector<SendPush> pushes = PushFirstStep(&driver);
  driver.AdvanceBy(absl::Seconds(1));
  driver.Answer(pushes[0], driver.Reply(GetParam()));
  EXPECT_TRUE(driver.Has<CallRegister>());
  driver.Answer(pushes[1], driver.Reply(OK));
  EXPECT_FALSE(driver.Has<CallReportBatches>());
  driver.Take<CallAcquireWork>();
  driver.Register(8);
  EXPECT_EQ(driver.loop->incarnation(), 8u);
  EXPECT_EQ(driver.loop->clock(), 0);
  const CallAcquireWork ask = driver.TakeOne<CallAcquireWork>();
  EXPECT_EQ(ask.request.sequence(), 1u);
  EXPECT_FALSE(ask.request.ahead());
  EXPECT_FALSE(driver.Has<SendPush>());
}

INSTANTIATE_TEST_SUITE_P(Codes, DropsAllAndRegisters, testing::Values(FENCED, STALE_GENERATION),
                         [](const auto& info) { return ReplyCode_Name(info.param); });

TEST(StepLoopRecovery, RegistrationsArePaced) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.Answer(driver.Take<SendPull>()[0], driver.Reply(FENCED));
  EXPECT_FALSE(driver.Has<CallRegister>());
  driver.AdvanceBy(absl::Seconds(1));
  EXPECT_TRUE(driver.Has<CallRegister>());
}

TEST(StepLoopRecovery, ResultOfADroppedStepIsDiscarded) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.AdvanceBy(absl::Seconds(1));
  driver.AnswerHeartbeat(REGISTER_AGAIN);
  driver.Take<CallAcquireWork>();
  driver.Register(8);
  AcquireWorkResponse response = driver.LeaseAnswer(1);
  driver.AnswerAcquire(response);
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  ASSERT_EQ(pulls.size(), 2u);
  // Buffer 0 is still read by the old computation.
  EXPECT_EQ(pulls[0].buffer, 1);
  for (const SendPull& pull : pulls) driver.Answer(pull, driver.Reply(OK));
  driver.Computed();
  EXPECT_FALSE(driver.Has<SendPush>());
  EXPECT_EQ(KeyText(driver.TakeOne<StartCompute>().key), "0/1/0");
}

TEST(StepLoopRecovery, HeartbeatAnswerOfAnEarlierIncarnationIsIgnored) {
  StepLoopDriver driver;
  driver.Join();
  const uint64_t old_call = driver.TakeOne<CallHeartbeat>().call_id;
  driver.AdvanceBy(absl::Seconds(1));
  driver.AnswerHeartbeat(REGISTER_AGAIN);
  driver.Take<CallAcquireWork>();
  driver.Register(8);
  HeartbeatResponse late;
  late.set_term(1);
  late.set_directive(REGISTER_AGAIN);
  driver.loop->OnHeartbeatResponse(old_call, late, driver.now, &driver.effects);
  EXPECT_EQ(driver.loop->incarnation(), 8u);
}

TEST(StepLoopRecovery, RestartedChiefsTermIsTakenFromThePs) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  ReplyHeader reply = driver.Reply(STALE_GENERATION);
  reply.set_term(2);
  driver.Answer(pulls[0], reply);
  const SendPull again = driver.TakeOne<SendPull>();
  EXPECT_EQ(again.request_id, pulls[0].request_id);
  EXPECT_EQ(again.header.term(), 2u);
}

TEST(StepLoopRecovery, StaleMapIsFetchedAndTheRequestSentAgain) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  ReplyHeader reply = driver.Reply(STALE_MAP);
  reply.set_map_version(2);
  driver.Answer(pulls[0], reply);
  const CallAcquireWork ask = driver.TakeOne<CallAcquireWork>();
  EXPECT_TRUE(ask.request.ahead());
  EXPECT_EQ(ask.request.map_version(), 1u);
  AcquireWorkResponse response;
  response.set_term(1);
  response.mutable_retry_after();
  *response.mutable_shard_map() = driver.MapOf(2);
  driver.loop->OnAcquireWorkResponse(ask.call_id, response, driver.now, &driver.effects);
  const std::vector<SendPull> again = driver.Take<SendPull>();
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].request_id, pulls[0].request_id);
  EXPECT_EQ(again[0].header.map_version(), 2u);
}

TEST(StepLoopRecovery, PsBehindTheMapIsAskedAgainWithoutFetching) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  const std::vector<SendPull> pulls = driver.Take<SendPull>();
  driver.Answer(pulls[0], driver.Reply(STALE_MAP));
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
  driver.AdvanceBy(absl::Milliseconds(100));
  EXPECT_EQ(driver.TakeOne<SendPull>().request_id, pulls[0].request_id);
}

TEST(StepLoopRecovery, OnlyMovedShardsAreSentAgainUnderTheSameKey) {
  StepLoopDriver driver(NoPrefetch());
  const std::vector<SendPush> pushes = PushFirstStep(&driver);
  driver.Answer(pushes[0], driver.Reply(OK));
  ReplyHeader moved = driver.Reply(OK);
  moved.set_map_version(2);
  moved.add_results()->set_shard(1);
  moved.mutable_results(0)->set_outcome(MOVED);
  driver.Answer(pushes[1], moved);
  EXPECT_EQ(driver.loop->clock(), 0);
  AcquireWorkResponse response;
  response.set_term(1);
  response.mutable_retry_after();
  *response.mutable_shard_map() = driver.MapOf(2, 0);
  driver.AnswerAcquire(response);
  const SendPush again = driver.TakeOne<SendPush>();
  EXPECT_EQ(again.ps_index, 0);
  EXPECT_EQ(again.shards, std::vector<uint32_t>{1});
  EXPECT_EQ(KeyText(again.header.key()), "0/0/0");
  driver.Answer(again, driver.Reply(OK));
  EXPECT_EQ(driver.loop->clock(), 1);
}

TEST(StepLoopRecovery, RefusedRequestEndsTheWorker) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  ReplyHeader refused = driver.Reply(REFUSED);
  refused.set_message("protocol 2, this ps speaks 1");
  driver.Answer(driver.Take<SendPull>()[0], refused);
  const CallLeave leave = driver.TakeOne<CallLeave>();
  EXPECT_TRUE(leave.request.failed());
  EXPECT_NE(leave.request.reason().find("protocol 2"), std::string::npos);
}

TEST(StepLoopRecovery, ImpossibleLeaseEndsTheWorker) {
  StepLoopDriver driver;
  driver.Join(99);
  EXPECT_TRUE(driver.TakeOne<CallLeave>().request.failed());
}

TEST(StepLoopRecovery, NextTickNeverStandsStill) {
  StepLoopDriver driver;
  driver.Join();
  for (int i = 0; i < 200; ++i) {
    const absl::Time next = driver.loop->next_tick();
    ASSERT_GT(next, driver.now);
    driver.now = next;
    driver.loop->Tick(driver.now, &driver.effects);
    if (i == 50) driver.AnswerAll<SendPull>();
    if (i == 60) driver.AnswerAll<SendPull>();
    if (i == 70) driver.Computed();
    if (i == 90) driver.AnswerAll<SendPush>();
  }
}

}  // namespace
}  // namespace lagrange

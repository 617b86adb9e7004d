// The step loop and the chief: registration, leases, reports, directives, stopping.

#include "worker/core/step_loop.h"
#include "worker/core/step_loop_testing.h"

namespace lagrange {
namespace {

StepLoopOptions NoPrefetch() {
  StepLoopOptions options;
  options.prefetch = false;
  return options;
}

// The one step of lease 3 is acknowledged.
void FinishShortLease(StepLoopDriver* driver) {
  driver->Join(3);
  driver->Step();
}

TEST(StepLoopChief, RefusedRegistrationEndsTheProcess) {
  StepLoopDriver driver;
  driver.Start();
  RegisterResponse response;
  response.set_outcome(RegisterResponse::REFUSED_REGISTRATION);
  response.set_message("this worker expects 4 workers, the job has 3");
  driver.loop->OnRegisterResponse(driver.TakeOne<CallRegister>().call_id, response, driver.now, &driver.effects);
  const absl::Status status = driver.TakeOne<WorkerExit>().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("expects 4 workers"), std::string::npos);
}

TEST(StepLoopChief, CompleteJobEndsALateWorkerWell) {
  StepLoopDriver driver;
  driver.Start();
  RegisterResponse response;
  response.set_outcome(RegisterResponse::JOB_IS_COMPLETE);
  driver.loop->OnRegisterResponse(driver.TakeOne<CallRegister>().call_id, response, driver.now, &driver.effects);
  EXPECT_TRUE(driver.TakeOne<WorkerExit>().status.ok());
}

TEST(StepLoopChief, HeartbeatsKeepTheIntervalOfTheRegistration) {
  StepLoopDriver driver;
  driver.Start();
  RegisterResponse response;
  response.set_outcome(RegisterResponse::REGISTERED);
  response.set_incarnation(7);
  response.mutable_heartbeat_interval()->set_seconds(3);
  driver.loop->OnRegisterResponse(driver.TakeOne<CallRegister>().call_id, response, driver.now, &driver.effects);
  EXPECT_EQ(driver.TakeOne<CallHeartbeat>().request.incarnation(), 7u);
  driver.AdvanceBy(absl::Milliseconds(2999));
  EXPECT_FALSE(driver.Has<CallHeartbeat>());
  driver.AdvanceBy(absl::Milliseconds(1));
  EXPECT_TRUE(driver.Has<CallHeartbeat>());
}

TEST(StepLoopChief, NextLeaseIsAskedForDuringTheLastBatch) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join(0, {0});
  driver.AnswerAll<SendPull>();
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
  driver.Computed();
  driver.AnswerAll<SendPush>();
  const CallAcquireWork ask = driver.TakeOne<CallAcquireWork>();
  EXPECT_TRUE(ask.request.ahead());
  EXPECT_EQ(ask.request.sequence(), 2u);
  EXPECT_EQ(ask.request.map_version(), 1u);
}

TEST(StepLoopChief, NothingIsAskedAheadWithoutTheOption) {
  StepLoopOptions options = NoPrefetch();
  options.acquire_ahead = false;
  StepLoopDriver driver(options);
  driver.Join(3);
  driver.AnswerAll<SendPull>();
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
}

TEST(StepLoopChief, NothingToDoIsAskedAgainUnderTheSameSequenceAfterThePause) {
  StepLoopDriver driver;
  driver.Start();
  driver.Register();
  AcquireWorkResponse nothing;
  nothing.set_term(1);
  nothing.mutable_retry_after()->set_nanos(50'000'000);
  driver.AnswerAcquire(nothing);
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
  EXPECT_EQ(driver.loop->next_tick(), driver.now + absl::Milliseconds(50));
  driver.AdvanceBy(absl::Milliseconds(50));
  EXPECT_EQ(driver.TakeOne<CallAcquireWork>().request.sequence(), 1u);
}

TEST(StepLoopChief, RunDryWorkerReportsBeforeItAsks) {
  StepLoopDriver driver;
  driver.Join(3);
  driver.AnswerAll<SendPull>();
  AcquireWorkResponse nothing;
  nothing.set_term(1);
  nothing.mutable_retry_after()->set_seconds(9);
  driver.AnswerAcquire(nothing);
  driver.Computed();
  driver.AnswerAll<SendPush>();
  EXPECT_FALSE(driver.Has<CallAcquireWork>());
  driver.AnswerReport({ACCEPTED});
  EXPECT_FALSE(driver.TakeOne<CallAcquireWork>().request.ahead());
}

TEST(StepLoopChief, DoneNamesCutLossAndExamples) {
  StepLoopDriver driver;
  driver.Join(3);
  driver.AnswerAll<SendPull>();
  driver.Computed();
  const std::vector<SendPush> pushes = driver.Take<SendPush>();
  driver.Answer(pushes[0], driver.Reply(OK, 3));
  driver.Answer(pushes[1], driver.Reply(OK, 8));
  const CallReportBatches report = driver.TakeOne<CallReportBatches>();
  ASSERT_EQ(report.request.done_size(), 1);
  EXPECT_EQ(KeyText(report.request.done(0).key()), "0/3/0");
  EXPECT_EQ(report.request.done(0).cut(), 8u);
  EXPECT_EQ(report.request.done(0).example_count(), 10);
  EXPECT_EQ(report.request.done(0).loss_sum(), 23.0);
  EXPECT_EQ(report.request.incarnation(), 7u);
  EXPECT_EQ(report.request.generation(), 1u);
}

TEST(StepLoopChief, DonesAreBundledForTheInterval) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.Step();
  driver.AdvanceBy(absl::Milliseconds(199));
  driver.Step();
  EXPECT_FALSE(driver.Has<CallReportBatches>());
  driver.AdvanceBy(absl::Milliseconds(1));
  EXPECT_EQ(driver.TakeOne<CallReportBatches>().request.done_size(), 2);
}

TEST(StepLoopChief, CompleteLeaseIsReportedAtOnce) {
  StepLoopDriver driver;
  FinishShortLease(&driver);
  EXPECT_TRUE(driver.Has<CallReportBatches>());
}

TEST(StepLoopChief, UnansweredReportIsSentAgain) {
  StepLoopDriver driver;
  FinishShortLease(&driver);
  const CallReportBatches first = driver.TakeOne<CallReportBatches>();
  driver.AdvanceBy(absl::Seconds(5));
  const CallReportBatches second = driver.TakeOne<CallReportBatches>();
  EXPECT_EQ(second.call_id, first.call_id);
  EXPECT_EQ(second.request.done_size(), 1);
}

TEST(StepLoopChief, FailedReportIsSentAgainAfterAPause) {
  StepLoopDriver driver;
  FinishShortLease(&driver);
  const CallReportBatches first = driver.TakeOne<CallReportBatches>();
  driver.loop->OnChiefCallFailed(first.call_id, absl::UnavailableError("refused"), driver.now, &driver.effects);
  EXPECT_FALSE(driver.Has<CallReportBatches>());
  driver.AdvanceBy(absl::Milliseconds(200));
  EXPECT_EQ(driver.TakeOne<CallReportBatches>().call_id, first.call_id);
}

TEST(StepLoopChief, SettledDoneIsNotReportedAgain) {
  StepLoopDriver driver;
  FinishShortLease(&driver);
  driver.AnswerReport({ALREADY_SETTLED});
  driver.AdvanceBy(absl::Seconds(30));
  EXPECT_FALSE(driver.Has<CallReportBatches>());
}

TEST(StepLoopChief, LeaseOfAnotherHolderIsDropped) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.Step();
  driver.AdvanceBy(absl::Milliseconds(200));
  driver.AnswerReport({NOT_HOLDER});
  driver.Step();
  driver.AnswerReport({NOT_HOLDER});
  EXPECT_FALSE(driver.Has<SendPull>());
  driver.AnswerAcquire(driver.LeaseAnswer(1));
  driver.AnswerAll<SendPull>();
  EXPECT_EQ(KeyText(driver.TakeOne<StartCompute>().key), "0/1/0");
}

TEST(StepLoopChief, AnswerOfAnEarlierTermIsIgnored) {
  StepLoopDriver driver;
  driver.Start();
  driver.Register(7, 5);
  AcquireWorkResponse old = driver.LeaseAnswer(0);
  old.set_term(4);
  *old.mutable_shard_map() = driver.MapOf(1);
  driver.AnswerAcquire(old);
  EXPECT_FALSE(driver.Has<SendPull>());
}

TEST(StepLoopChief, HigherTermIsAdopted) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerHeartbeat(CONTINUE, "", 2);
  driver.AdvanceBy(absl::Seconds(1));
  EXPECT_EQ(driver.TakeOne<CallHeartbeat>().request.term(), 2u);
}

TEST(StepLoopChief, FinishLeavesAndExitsWell) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerHeartbeat(FINISH);
  const CallLeave leave = driver.TakeOne<CallLeave>();
  EXPECT_FALSE(leave.request.failed());
  EXPECT_EQ(leave.request.incarnation(), 7u);
  EXPECT_FALSE(driver.Has<WorkerExit>());
  driver.loop->OnLeaveResponse(leave.call_id, driver.now, &driver.effects);
  EXPECT_TRUE(driver.TakeOne<WorkerExit>().status.ok());
}

TEST(StepLoopChief, GoneChiefDoesNotKeepALeavingWorker) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerHeartbeat(FINISH);
  for (int i = 0; i < 3; ++i) {
    driver.loop->OnChiefCallFailed(driver.TakeOne<CallLeave>().call_id, absl::UnavailableError("refused"), driver.now,
                                   &driver.effects);
    EXPECT_FALSE(driver.Has<WorkerExit>());
    driver.AdvanceBy(absl::Milliseconds(200));
  }
  EXPECT_TRUE(driver.TakeOne<WorkerExit>().status.ok());
}

TEST(StepLoopChief, AbortLeavesAndExitsWithTheReason) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerHeartbeat(ABORT, "ps 1 is lost");
  EXPECT_FALSE(driver.Has<WorkerExit>());
  const CallLeave leave = driver.TakeOne<CallLeave>();
  EXPECT_EQ(leave.request.incarnation(), 7u);
  EXPECT_FALSE(leave.request.failed());
  driver.loop->OnLeaveResponse(leave.call_id, driver.now, &driver.effects);
  const absl::Status status = driver.TakeOne<WorkerExit>().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_NE(status.message().find("ps 1 is lost"), std::string::npos);
}

TEST(StepLoopChief, PatienceWithASilentChiefEnds) {
  StepLoopOptions options;
  options.chief_patience = absl::Seconds(30);
  StepLoopDriver driver(options);
  driver.Join();
  driver.loop->OnChiefCallFailed(driver.TakeOne<CallHeartbeat>().call_id, absl::UnavailableError("refused"), driver.now,
                                 &driver.effects);
  driver.AdvanceBy(absl::Seconds(29));
  EXPECT_FALSE(driver.Has<WorkerExit>());
  driver.AdvanceBy(absl::Seconds(1));
  const absl::Status status = driver.TakeOne<WorkerExit>().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("refused"), std::string::npos);
}

TEST(StepLoopChief, PatienceStartsAnewWithEachAnswer) {
  StepLoopOptions options;
  options.chief_patience = absl::Seconds(30);
  StepLoopDriver driver(options);
  driver.Join();
  driver.loop->OnChiefCallFailed(driver.TakeOne<CallHeartbeat>().call_id, absl::UnavailableError("refused"), driver.now,
                                 &driver.effects);
  driver.AdvanceBy(absl::Seconds(29));
  driver.AnswerHeartbeat(CONTINUE);
  driver.AdvanceBy(absl::Seconds(29));
  EXPECT_FALSE(driver.Has<WorkerExit>());
}

TEST(StepLoopChief, StartupTimeoutEndsAnUnregisteredWorker) {
  StepLoopOptions options;
  options.startup_timeout = absl::Seconds(2);
  StepLoopDriver driver(options);
  driver.Start();
  driver.loop->OnChiefCallFailed(driver.TakeOne<CallRegister>().call_id,
                                 absl::UnavailableError("chief:7000: name not resolved"), driver.now, &driver.effects);
  driver.AdvanceBy(absl::Milliseconds(1999));
  EXPECT_FALSE(driver.Has<WorkerExit>());
  driver.AdvanceBy(absl::Milliseconds(1));
  EXPECT_NE(driver.TakeOne<WorkerExit>().status.message().find("name not resolved"), std::string::npos);
}

TEST(StepLoopStop, FinishesTheStepReportsLeavesAndExitsWell) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.loop->OnStopRequested(driver.now, &driver.effects);
  EXPECT_FALSE(driver.Has<CallLeave>());
  driver.Computed();
  driver.AnswerAll<SendPush>();
  EXPECT_FALSE(driver.Has<CallLeave>());
  driver.AnswerReport({ACCEPTED});
  const CallLeave leave = driver.TakeOne<CallLeave>();
  EXPECT_FALSE(leave.request.failed());
  driver.loop->OnLeaveResponse(leave.call_id, driver.now, &driver.effects);
  EXPECT_TRUE(driver.TakeOne<WorkerExit>().status.ok());
}

TEST(StepLoopStop, WaitingPullIsGivenUp) {
  StepLoopDriver driver;
  driver.Join();
  driver.loop->OnStopRequested(driver.now, &driver.effects);
  EXPECT_TRUE(driver.Has<CallLeave>());
}

TEST(StepLoopStop, UnregisteredWorkerExitsAtOnce) {
  StepLoopDriver driver;
  driver.Start();
  driver.loop->OnStopRequested(driver.now, &driver.effects);
  EXPECT_TRUE(driver.TakeOne<WorkerExit>().status.ok());
}

TEST(StepLoopStop, UnansweredPushDelaysTheLeaveForItsPatienceOnly) {
  StepLoopDriver driver(NoPrefetch());
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.Computed();
  driver.loop->OnStopRequested(driver.now, &driver.effects);
  driver.AdvanceBy(absl::Milliseconds(9999));
  EXPECT_FALSE(driver.Has<CallLeave>());
  driver.AdvanceBy(absl::Milliseconds(1));
  EXPECT_TRUE(driver.Has<CallLeave>());
}

TEST(StepLoopStop, BrokenComputationLeavesAsFailed) {
  StepLoopDriver driver;
  driver.Join();
  driver.AnswerAll<SendPull>();
  driver.Computed(absl::InternalError("device lost"));
  const CallLeave leave = driver.TakeOne<CallLeave>();
  EXPECT_TRUE(leave.request.failed());
  EXPECT_FALSE(leave.request.fatal_for_job());
  EXPECT_EQ(leave.request.reason(), "device lost");
  driver.loop->OnLeaveResponse(leave.call_id, driver.now, &driver.effects);
  EXPECT_EQ(driver.TakeOne<WorkerExit>().status.code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace lagrange

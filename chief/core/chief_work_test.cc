#include <algorithm>
#include <set>

#include "chief/core/chief_scenario.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BatchKey MakeKey(int64_t epoch, int64_t lease, int32_t batch) {
  BatchKey key;
  key.set_epoch(epoch);
  key.set_lease(lease);
  key.set_batch(batch);
  return key;
}

ReportBatchesRequest DoneOf(uint64_t incarnation, const BatchKey& key) {
  ReportBatchesRequest request;
  request.set_incarnation(incarnation);
  request.set_generation(1);
  BatchDone* done = request.add_done();
  *done->mutable_key() = key;
  done->set_example_count(4);
  done->set_cut(1);
  return request;
}

BatchVerdict VerdictOf(Scenario* scenario, uint64_t incarnation, const BatchKey& key) {
  return scenario->Report(DoneOf(incarnation, key)).verdicts(0);
}

// Until worker i holds a lease with all its batches to compute, and the others stand still.
void RunToFirstGrant(Scenario* scenario, size_t i) {
  ASSERT_TRUE(scenario->RunUntil([&] { return !scenario->workers[i].todo.empty(); }));
}

size_t ChangesOf(const Scenario& scenario, uint64_t incarnation, MemberChange::State state) {
  size_t count = 0;
  for (const auto& [ps_index, command] : scenario.commands) {
    for (const MemberChange& change : command.set_membership().changes()) {
      count += change.incarnation() == incarnation && change.state() == state ? 1 : 0;
    }
  }
  return count;
}

TEST(ChiefWork, AWholeJobEndsWithItsAccountClosed) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
  for (const ScenarioPs& ps : scenario.ps) EXPECT_EQ(ps.duplicates, 0);
}

TEST(ChiefWork, ARepeatedRequestGetsTheSameLease) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  AcquireWorkRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(1);
  request.set_sequence(scenario.workers[0].sequence);
  const AcquireWorkResponse again = scenario.Acquire(request);
  ASSERT_TRUE(again.has_lease());
  EXPECT_EQ(again.lease().lease(), scenario.workers[0].grants[0].second);
  EXPECT_TRUE(again.lease().has_start_clock());
}

TEST(ChiefWork, AnOlderRequestThatComesLateGetsNoLease) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  AcquireWorkRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(1);
  request.set_sequence(scenario.workers[0].sequence - 1);
  EXPECT_TRUE(scenario.Acquire(request).has_retry_after());
}

TEST(ChiefWork, AskingAheadGetsOneMoreLeaseAndNoThird) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  AcquireWorkRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(1);
  request.set_ahead(true);
  request.set_sequence(scenario.workers[0].sequence + 1);
  const AcquireWorkResponse second = scenario.Acquire(request);
  ASSERT_TRUE(second.has_lease());
  EXPECT_FALSE(second.lease().has_start_clock());
  request.set_sequence(scenario.workers[0].sequence + 2);
  EXPECT_TRUE(scenario.Acquire(request).has_retry_after());
  EXPECT_EQ(ChangesOf(scenario, request.incarnation(), MemberChange::PARKED), 0);
}

TEST(ChiefWork, OfAnotherGenerationOrAnUnknownIncarnationIsToRegisterAgain) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  AcquireWorkRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(0);
  request.set_sequence(99);
  EXPECT_EQ(scenario.Acquire(request).directive(), REGISTER_AGAIN);
  request.set_generation(1);
  request.set_incarnation(12345);
  EXPECT_EQ(scenario.Acquire(request).directive(), REGISTER_AGAIN);
  // A ps asks for no work.
  request.set_incarnation(scenario.ps[0].incarnation);
  EXPECT_EQ(scenario.Acquire(request).directive(), REGISTER_AGAIN);
}

TEST(ChiefWork, TheStartClockIsTheLargestThatAPsAnswered) {
  Scenario scenario;
  scenario.ps[1].table[999].clock = 17;
  RunToFirstGrant(&scenario, 0);
  EXPECT_EQ(scenario.workers[0].last_start_clock, 17);
}

TEST(ChiefWork, NoLeaseBeforeEveryPsHasAnsweredTheJoin) {
  Scenario scenario;
  scenario.ps_fault = [](int32_t ps_index, const PsCommand& command) -> std::optional<absl::Status> {
    if (ps_index == 1 && command.has_set_membership()) return absl::UnavailableError("away");
    return std::nullopt;
  };
  EXPECT_FALSE(scenario.RunUntil([&] { return !scenario.durable.leases.empty(); }, 300));
  scenario.ps_fault = nullptr;
  EXPECT_TRUE(scenario.RunUntil([&] { return !scenario.durable.leases.empty(); }, 300));
}

TEST(ChiefWork, AWorkerWithoutWorkIsParkedAtEveryPs) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  scenario.workers[0].alive = false;
  HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(scenario.workers[0].incarnation);
  const uint64_t other = scenario.workers[1].incarnation;
  ASSERT_TRUE(scenario.RunUntil([&] {
    scenario.Heartbeat(heartbeat);
    return ChangesOf(scenario, other, MemberChange::PARKED) == 2;
  }));
  for (const ScenarioPs& ps : scenario.ps) EXPECT_EQ(ps.table.at(other).state, MemberChange::PARKED);
}

TEST(ChiefWork, TheLeaseOfADeadWorkerIsComputedByAnother) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  // It dies with one batch of two reported and one pushed but not reported.
  ScenarioWorker& dead = scenario.workers[0];
  ASSERT_TRUE(scenario.RunUntil([&] { return dead.unreported.size() == 2; }));
  const BatchDone reported = dead.unreported[0];
  ReportBatchesRequest request = DoneOf(dead.incarnation, reported.key());
  *request.mutable_done(0) = reported;
  ASSERT_EQ(scenario.Report(request).verdicts(0), ACCEPTED);
  dead.alive = false;
  const absl::Time died = scenario.now;
  ASSERT_TRUE(
      scenario.RunUntil([&] { return scenario.durable.members.at(dead.incarnation).state == MemberState::kEvicted; }));
  EXPECT_LT(scenario.now - died, absl::Seconds(11));
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
  // The batch that wasn't reported was computed a second time, and counted on each ps once.
  for (const ScenarioPs& ps : scenario.ps) EXPECT_EQ(ps.duplicates, 1);
}

TEST(ChiefWork, AHungWorkerComesBackUnderANewIncarnationAndItsReportsAreRefused) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  ScenarioWorker& hung = scenario.workers[0];
  const uint64_t old_one = hung.incarnation;
  const BatchKey held = hung.todo.front();
  hung.alive = false;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.members.at(old_one).state == MemberState::kEvicted; }));
  const ReportBatchesResponse late = scenario.Report(DoneOf(old_one, held));
  EXPECT_EQ(late.verdicts(0), NOT_HOLDER);
  EXPECT_EQ(late.directive(), REGISTER_AGAIN);
  hung.alive = true;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_NE(hung.incarnation, old_one);
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefWork, ReportsOfBatchesThatNobodyHoldsHaveDefinedAnswersAndCountNothing) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  const uint64_t holder = scenario.workers[0].incarnation;
  const int64_t lease = scenario.workers[0].grants[0].second;
  const BatchKey key = MakeKey(0, lease, 0);
  EXPECT_EQ(VerdictOf(&scenario, scenario.workers[1].incarnation, key), NOT_HOLDER);
  EXPECT_EQ(VerdictOf(&scenario, holder, key), ACCEPTED);
  EXPECT_EQ(VerdictOf(&scenario, holder, key), ALREADY_SETTLED);
  EXPECT_EQ(VerdictOf(&scenario, scenario.workers[1].incarnation, key), ALREADY_SETTLED);
  EXPECT_EQ(VerdictOf(&scenario, holder, MakeKey(0, lease, 999)), UNKNOWN_BATCH);
  EXPECT_EQ(VerdictOf(&scenario, holder, MakeKey(0, 999, 0)), UNKNOWN_BATCH);
  EXPECT_EQ(VerdictOf(&scenario, holder, MakeKey(7, lease, 0)), UNKNOWN_BATCH);
  EXPECT_EQ(VerdictOf(&scenario, holder, MakeKey(-1, -1, -1)), UNKNOWN_BATCH);
  EXPECT_EQ(VerdictOf(&scenario, holder, MakeKey(0, 4, 0)), NOT_HOLDER);
  EXPECT_EQ(scenario.Status().examples_done_in_epoch(), 4);
}

TEST(ChiefWork, ReportsWithImpossibleNumbersAreRefused) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  const uint64_t holder = scenario.workers[0].incarnation;
  ReportBatchesRequest request = DoneOf(holder, scenario.workers[0].todo.front());
  request.mutable_done(0)->set_example_count(5);
  EXPECT_EQ(scenario.Report(request).verdicts(0), UNKNOWN_BATCH);
  request.mutable_done(0)->set_example_count(-1);
  EXPECT_EQ(scenario.Report(request).verdicts(0), UNKNOWN_BATCH);
  request.mutable_done(0)->set_example_count(4);
  request.mutable_done(0)->set_cut(1000);
  EXPECT_EQ(scenario.Report(request).verdicts(0), UNKNOWN_BATCH);
  request.mutable_done(0)->set_cut(1);
  request.set_generation(2);
  EXPECT_EQ(scenario.Report(request).verdicts(0), OLD_GENERATION);
  EXPECT_THAT(scenario.durable.batches, IsEmpty());
}

TEST(ChiefWork, ABadPushBeyondTheLimitEndsTheJobNamingIt) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  ReportBatchesRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(1);
  *request.add_skipped()->mutable_key() = scenario.workers[0].todo.front();
  request.mutable_skipped(0)->set_reason("variable dense_0/kernel, worker 0, step 1: gradient element 5 is nan");
  const ReportBatchesResponse response = scenario.Report(request);
  EXPECT_EQ(response.verdicts(0), ACCEPTED);
  EXPECT_EQ(response.directive(), ABORT);
  EXPECT_THAT(response.message(), HasSubstr("variable dense_0/kernel, worker 0, step 1"));
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(scenario.durable.end.code, absl::StatusCode::kAborted);
  for (const ScenarioPs& ps : scenario.ps) EXPECT_THAT(ps.shutdown_reason, HasSubstr("element 5 is nan"));
}

TEST(ChiefWork, ABadPushWithinTheLimitIsSkippedAndAccountedFor) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_max_bad_pushes(1);
  Scenario scenario(options);
  RunToFirstGrant(&scenario, 0);
  ReportBatchesRequest request;
  request.set_incarnation(scenario.workers[0].incarnation);
  request.set_generation(1);
  *request.add_skipped()->mutable_key() = scenario.workers[0].todo.front();
  scenario.workers[0].todo.pop_front();
  ASSERT_EQ(scenario.Report(request).verdicts(0), ACCEPTED);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_TRUE(scenario.exit_status->ok());
  EXPECT_EQ(scenario.durable.epochs.at(0).report.examples_done(), 36);
  EXPECT_EQ(scenario.durable.epochs.at(0).report.examples_skipped(), 4);
  EXPECT_EQ(scenario.manifests.back().ledger().examples_skipped(), 4);
  EXPECT_EQ(scenario.Status().report().bad_pushes(), 1);
}

TEST(ChiefWork, AnEvaluationTaskOfADeadWorkerIsDoneByAnother) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.workers[0].evaluation.has_value(); }));
  const EvaluationTask task = *scenario.workers[0].evaluation;
  scenario.workers[0].alive = false;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
  const auto& done = scenario.workers[1].evaluations;
  EXPECT_TRUE(std::any_of(done.begin(), done.end(), [&task](const EvaluationTask& other) {
    return other.SerializeAsString() == task.SerializeAsString();
  }));
}

TEST(ChiefWork, EvaluationsThatFailedInOneEpochDontCountInTheNext) {
  Scenario scenario;
  const auto& task = scenario.workers[0].evaluation;
  for (const int64_t epoch : {0, 1}) {
    ASSERT_TRUE(scenario.RunUntil([&] { return task.has_value() && task->epoch() == epoch; }));
    ReportEvaluationRequest request;
    request.set_incarnation(scenario.workers[0].incarnation);
    request.set_generation(1);
    *request.mutable_task() = *task;
    request.set_abandoned(true);
    ChiefEffects effects;
    // As many as one epoch may have.
    for (int i = 0; i < 100; ++i) scenario.chief()->ReportEvaluation(request, scenario.now, &effects);
  }
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefWork, ALeaseWhoseGrantNeverArrivedComesBack) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  // The worker forgets it and asks anew, as if the answer had been lost together with its sequence.
  scenario.workers[0].todo.clear();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefWork, AWorkerThatDroppedEverythingGetsANewIncarnationThoughItDoesNotSayWhichItHad) {
  Scenario scenario;
  RunToFirstGrant(&scenario, 0);
  ScenarioWorker& worker = scenario.workers[0];
  const uint64_t dropped = worker.incarnation;
  // As after FENCED: the same process, its sequences begin anew.
  worker.incarnation = 0;
  worker.sequence = 0;
  worker.todo.clear();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
  EXPECT_GT(worker.incarnation, dropped);
  EXPECT_EQ(scenario.durable.members.at(dropped).state, MemberState::kEvicted);
}

TEST(ChiefWork, AJobWithOneWorkerGetsTheLeasesInOrder) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.mutable_cluster()->set_worker_count(1);
  options.job.set_epochs(1);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  using Lease = std::pair<int64_t, int64_t>;
  EXPECT_THAT(scenario.workers[0].grants, ElementsAre(Lease(0, 0), Lease(0, 1), Lease(0, 2), Lease(0, 3), Lease(0, 4)));
}

// ---- bsp -----------------------------------------------------------------------------------------------------------

class ChiefBsp : public ::testing::Test {
 protected:
  static ChiefOptions Options() {
    ChiefOptions options = Scenario::DefaultOptions();
    options.job.mutable_consistency()->mutable_bsp();
    options.job.mutable_cluster()->set_worker_count(3);
    return options;
  }
  Scenario scenario{Options()};
};

TEST_F(ChiefBsp, AWholeJobEndsWithItsAccountClosed) {
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST_F(ChiefBsp, NobodyStartsBeforeEveryLiveWorkerAsks) {
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.workers[2].incarnation != 0; }));
  scenario.workers[2].alive = false;
  HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(scenario.workers[2].incarnation);
  EXPECT_FALSE(scenario.RunUntil(
      [&] {
        scenario.Heartbeat(heartbeat);
        return !scenario.durable.leases.empty();
      },
      300));
  scenario.workers[2].alive = true;
  EXPECT_TRUE(scenario.RunUntil([&] { return !scenario.durable.leases.empty(); }, 300));
}

TEST_F(ChiefBsp, AllStartTogetherAtOneClockWithLeasesInTheOrderOfTheirIndices) {
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.leases.size() >= 3; }));
  ASSERT_TRUE(scenario.RunUntil([&] { return !scenario.workers[2].grants.empty(); }));
  for (const ScenarioWorker& worker : scenario.workers) {
    EXPECT_EQ(worker.grants[0].second, worker.task_index);
    EXPECT_EQ(worker.last_start_clock, scenario.workers[0].last_start_clock);
  }
  // One command to each ps joined them all.
  for (const auto& [ps_index, command] : scenario.commands) {
    if (command.has_set_membership()) {
      EXPECT_EQ(command.set_membership().changes_size(), 3);
      break;
    }
  }
}

TEST_F(ChiefBsp, WorkersBeyondTheLeasesStayParked) {
  ChiefOptions options = Options();
  // 2 leases for 3 workers.
  options.job.mutable_data()->set_examples_per_lease(20);
  Scenario few(options);
  ASSERT_TRUE(few.RunUntil([&] { return few.durable.leases.size() == 2; }));
  EXPECT_FALSE(few.RunUntil([&] { return few.ps[0].table.count(few.workers[2].incarnation) > 0; }, 50));
}

TEST_F(ChiefBsp, ADeadWorkerDoesNotKeepTheGateShut) {
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.workers[2].incarnation != 0; }));
  scenario.workers[2].alive = false;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST_F(ChiefBsp, AWorkerThatDiesWhileJoiningDoesNotKeepTheGateShut) {
  scenario.ps_fault = [](int32_t ps_index, const PsCommand& command) -> std::optional<absl::Status> {
    if (ps_index == 1 && command.has_set_membership()) return absl::UnavailableError("away");
    return std::nullopt;
  };
  ASSERT_TRUE(scenario.RunUntil([&] { return !scenario.ps[0].table.empty(); }));
  scenario.workers[2].alive = false;
  ASSERT_TRUE(scenario.RunUntil(
      [&] { return scenario.durable.members.at(scenario.workers[2].incarnation).state == MemberState::kEvicted; }));
  scenario.ps_fault = nullptr;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

}  // namespace
}  // namespace lagrange

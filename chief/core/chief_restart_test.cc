// The chief dies at every single call of a whole small job, before its records are committed, after that but before
// anything is sent, and after sending; each time the job must finish with every batch counted once.

#include <string>
#include <vector>

#include "chief/core/chief_scenario.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::IsEmpty;

void CrashEverywhere(const ChiefOptions& options, Scenario::Crash crash) {
  int64_t calls = 0;
  {
    Scenario undisturbed(options);
    ASSERT_TRUE(undisturbed.RunToExit());
    ASSERT_THAT(FaultsOfCompleteRun(undisturbed), IsEmpty());
    calls = undisturbed.calls;
  }
  ASSERT_GT(calls, 100);
  for (int64_t call = 0; call < calls; ++call) {
    Scenario scenario(options);
    scenario.crash = crash;
    scenario.crash_at_call = call;
    scenario.RunToExit();
    const std::vector<std::string> faults = FaultsOfCompleteRun(scenario);
    ASSERT_THAT(faults, IsEmpty()) << "the chief died at call " << call;
    EXPECT_EQ(scenario.durable.counters.at("term"), 2) << "the chief died at call " << call;
  }
}

TEST(ChiefRestart, BeforeCommitLosesNothing) {
  CrashEverywhere(Scenario::DefaultOptions(), Scenario::Crash::kBeforeCommit);
}

TEST(ChiefRestart, BetweenCommitAndSendingLosesNothing) {
  CrashEverywhere(Scenario::DefaultOptions(), Scenario::Crash::kBeforeSending);
}

TEST(ChiefRestart, AfterSendingLosesNothing) {
  CrashEverywhere(Scenario::DefaultOptions(), Scenario::Crash::kAfterSending);
}

TEST(ChiefRestart, UnderBspLosesNothing) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.mutable_consistency()->mutable_bsp();
  CrashEverywhere(options, Scenario::Crash::kBeforeSending);
}

TEST(ChiefRestart, KeepsTheRunIdOfTheFirstStart) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.batches.size() >= 2; }));
  scenario.options.run_id = 0xdef;
  scenario.RestartChief();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(scenario.durable.counters.at("run_id"), 0xabc);
  EXPECT_EQ(scenario.Status().report().checkpoint(), "/checkpoints/scenario-0000000000000abc-epoch-00002-cut-3");
}

TEST(ChiefRestart, AWorkerThatWasInTheTablesWithoutALeaseIsParked) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.mutable_cluster()->set_worker_count(1);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.batches.size() == 2; }));
  ScenarioWorker& worker = scenario.workers[0];
  ASSERT_EQ(scenario.ps[0].table.at(worker.incarnation).state, MemberChange::JOINED);
  // It stands still: it would hold up the others until its lease lapses.
  worker.alive = false;
  scenario.RestartChief();
  EXPECT_TRUE(
      scenario.RunUntil([&] { return scenario.ps[0].table.at(worker.incarnation).state == MemberChange::PARKED; }, 50));
}

TEST(ChiefRestart, ManyInOneJobLoseNothing) {
  // Fewer calls than a turn of the cluster has would never let an answer through.
  for (int64_t every = 12; every < 60; ++every) {
    Scenario scenario;
    int64_t next = every;
    for (int i = 0; i < 20000 && !scenario.exit_status.has_value(); ++i) {
      if (scenario.calls > next) {
        scenario.RestartChief();
        next = scenario.calls + every;
      }
      scenario.Turn();
    }
    ASSERT_THAT(FaultsOfCompleteRun(scenario), IsEmpty()) << "a restart each " << every << " calls";
  }
}

}  // namespace
}  // namespace lagrange

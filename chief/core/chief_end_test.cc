// The end of the job: good, bad, and interrupted.

#include <algorithm>

#include "chief/core/chief_scenario.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

bool Training(const Scenario& scenario) { return !scenario.durable.leases.empty(); }

std::string Reason(const Scenario& scenario) {
  return scenario.exit_status.has_value() ? std::string(scenario.exit_status->message()) : "still running";
}

TEST(ChiefEnd, ThePsStayUntilTheLastWorkerHasLeft) {
  Scenario scenario;
  // Worker 1 has nothing left to do, and doesn't notice the end for a while.
  scenario.hold_manifests = true;
  ASSERT_TRUE(scenario.RunUntil(
      [&] { return scenario.durable.epochs.size() == 2 && scenario.durable.epochs.at(1).evaluated; }));
  scenario.workers[1].alive = false;
  scenario.hold_manifests = false;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.workers[0].exited; }));
  HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(scenario.workers[1].incarnation);
  EXPECT_EQ(scenario.Heartbeat(heartbeat).directive(), FINISH);
  EXPECT_FALSE(scenario.RunUntil([&] { return scenario.ps[0].exited; }, 300));
  scenario.workers[1].alive = true;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.exit_status.has_value(); }, 300));
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, AWorkerThatIsKilledDuringTheFarewellDelaysTheEndBoundedly) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.ended; }));
  scenario.workers[1].alive = false;
  const absl::Time killed = scenario.now;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_TRUE(scenario.exit_status->ok());
  EXPECT_LT(scenario.now - killed, absl::Seconds(21));
}

TEST(ChiefEnd, ALateWorkerLearnsThatTheJobIsComplete) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(scenario.Register(scenario.WorkerRequest(77)).outcome(), RegisterResponse::JOB_IS_COMPLETE);
}

TEST(ChiefEnd, AfterAFailureALateWorkerIsToldWhy) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.ps[1].alive = false;
  ASSERT_TRUE(scenario.RunToExit());
  const RegisterResponse response = scenario.Register(scenario.WorkerRequest(77));
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), HasSubstr("ps 1"));
}

TEST(ChiefEnd, ALostPsFailsTheJobNamingIt) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.ps[1].alive = false;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), AllOf(HasSubstr("ps 1"), HasSubstr("host-101"), HasSubstr("10s")));
  EXPECT_TRUE(scenario.ps[0].exited);
  EXPECT_THAT(scenario.ps[0].shutdown_reason, HasSubstr("ps 1"));
  for (const ScenarioWorker& worker : scenario.workers) EXPECT_EQ(worker.last_directive, ABORT);
  EXPECT_EQ(scenario.Status().phase(), "failed");
}

TEST(ChiefEnd, APsThatStartsAgainMidJobFailsIt) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.ps[1].alive = false;
  RegisterRequest request = scenario.PsRequest(500);
  request.set_task_index(1);
  RegisterResponse response;
  ASSERT_TRUE(scenario.RunUntil(
      [&] {
        response = scenario.Register(request);
        return response.outcome() == RegisterResponse::REFUSED_REGISTRATION;
      },
      400));
  EXPECT_THAT(response.message(), HasSubstr("no parameters"));
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), HasSubstr("ps 1 was replaced"));
}

TEST(ChiefEnd, MissingProcessesFailTheJobAfterTheStartupTimeoutNamingThem) {
  Scenario scenario;
  scenario.ps[1].alive = false;
  scenario.workers[0].alive = false;
  scenario.options.startup_timeout = absl::Minutes(5);
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.exit_status.has_value(); }, 35000));
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Reason(scenario), AllOf(HasSubstr("ps: 1 of 2 registered"), HasSubstr("workers: 1 of 2 registered")));
}

TEST(ChiefEnd, AfterAStartupTimeoutTheNextChiefWaitsAnew) {
  Scenario scenario;
  scenario.ps[1].alive = false;
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.exit_status.has_value(); }, 35000));
  EXPECT_FALSE(scenario.durable.ended);
  scenario.exit_status.reset();
  // All processes are new ones, as after a failed start.
  for (size_t i = 0; i < scenario.ps.size(); ++i) {
    scenario.ps[i] = ScenarioPs();
    scenario.ps[i].process_id = 300 + i;
  }
  for (size_t i = 0; i < scenario.workers.size(); ++i) {
    scenario.workers[i] = ScenarioWorker();
    scenario.workers[i].process_id = 400 + i;
  }
  scenario.RestartChief();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_TRUE(scenario.exit_status->ok()) << Reason(scenario);
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, WithoutALiveWorkerTheJobFailsInBoundedTime) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.startup_timeout = absl::Seconds(5);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.epochs.size() == 1; }));
  for (ScenarioWorker& worker : scenario.workers) worker.alive = false;
  const absl::Time died = scenario.now;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), HasSubstr("no live workers"));
  EXPECT_LT(scenario.now - died, absl::Seconds(21));
  // The last checkpoint is intact.
  EXPECT_EQ(scenario.durable.checkpoints.size(), 1);
}

TEST(ChiefEnd, ADeadWorkerIsDroppedFromEveryTableWithinItsLease) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return !scenario.workers[0].todo.empty(); }));
  scenario.workers[0].alive = false;
  const absl::Time died = scenario.now;
  const uint64_t dead = scenario.workers[0].incarnation;
  ASSERT_TRUE(scenario.RunUntil([&] {
    return std::all_of(scenario.ps.begin(), scenario.ps.end(),
                       [dead](const ScenarioPs& ps) { return ps.table.at(dead).state == MemberChange::EVICTED; });
  }));
  EXPECT_LT(scenario.now - died, absl::Seconds(11));
}

TEST(ChiefEnd, AFailedCheckpointFailsTheJobNamingThePs) {
  Scenario scenario;
  scenario.ps_fault = [](int32_t ps_index, const PsCommand& command) -> std::optional<absl::Status> {
    if (ps_index == 1 && command.has_write_checkpoint()) return absl::ResourceExhaustedError("disk full");
    return std::nullopt;
  };
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), AllOf(HasSubstr("ps 1"), HasSubstr("disk full")));
}

TEST(ChiefEnd, AWorkerWhoseErrorLiesInTheJobEndsIt) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  LeaveRequest leave;
  leave.set_incarnation(scenario.workers[0].incarnation);
  leave.set_failed(true);
  leave.set_fatal_for_job(true);
  leave.set_reason("train-labels: label 17 of record 3");
  scenario.Leave(leave);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), HasSubstr("label 17 of record 3"));
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kInvalidArgument);
}

LeaveRequest BadDataBeforeRegistration() {
  LeaveRequest leave;
  leave.set_failed(true);
  leave.set_fatal_for_job(true);
  leave.set_reason("train-labels: cut short");
  return leave;
}

TEST(ChiefEnd, AWorkerThatFindsBadDataBeforeItRegistersEndsTheWaiting) {
  Scenario scenario;
  scenario.workers[0].alive = false;
  scenario.Turn();
  scenario.Leave(BadDataBeforeRegistration());
  EXPECT_EQ(scenario.Status().phase(), "failed");
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Reason(scenario), HasSubstr("train-labels: cut short"));
  EXPECT_THAT(scenario.ps[0].shutdown_reason, HasSubstr("train-labels: cut short"));
}

TEST(ChiefEnd, ALateWorkerWithBadDataLeavesARunningJobAlone) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.Leave(BadDataBeforeRegistration());
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, AStrangersFarewellChangesNothing) {
  Scenario scenario;
  scenario.Turn();
  LeaveRequest leave = BadDataBeforeRegistration();
  leave.set_incarnation(99);
  scenario.Leave(leave);
  leave = BadDataBeforeRegistration();
  leave.set_fatal_for_job(false);
  scenario.Leave(leave);
  leave = BadDataBeforeRegistration();
  leave.set_failed(false);
  scenario.Leave(leave);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, AWorkerThatLeavesHandsItsLeaseBackAndTheOthersGoOn) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return !scenario.workers[0].todo.empty(); }));
  LeaveRequest leave;
  leave.set_incarnation(scenario.workers[0].incarnation);
  scenario.workers[0].exited = true;
  scenario.Leave(leave);
  const absl::Time left = scenario.now;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_LT(scenario.now - left, absl::Seconds(5));
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, AStoppedChiefKeepsItsStateAndTheNextOneGoesOn) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  ChiefEffects effects;
  scenario.chief()->RequestStop(scenario.now, &effects);
  EXPECT_THAT(effects.records, IsEmpty());
  ASSERT_TRUE(std::holds_alternative<ExitAction>(effects.actions.back()));
  EXPECT_EQ(std::get<ExitAction>(effects.actions.back()).status.code(), absl::StatusCode::kCancelled);
  scenario.RestartChief();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

TEST(ChiefEnd, AChiefThatWasSuspendedEvictsNobody) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.now += absl::Minutes(10);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
  for (const auto& [incarnation, member] : scenario.durable.members) {
    EXPECT_NE(member.state, MemberState::kEvicted) << incarnation;
  }
}

TEST(ChiefEnd, AJobThatFailedStaysFailedAfterARestart) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunUntil([&] { return Training(scenario); }));
  scenario.ps[1].alive = false;
  ASSERT_TRUE(scenario.RunToExit());
  const absl::Status before = *scenario.exit_status;
  EXPECT_THAT(Reason(scenario), HasSubstr("ps 1"));
  scenario.exit_status.reset();
  scenario.RestartChief();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(*scenario.exit_status, before);
}

TEST(ChiefEnd, AJobWithBadInputStaysOneAfterARestart) {
  Scenario scenario;
  scenario.workers[0].alive = false;
  scenario.Turn();
  scenario.Leave(BadDataBeforeRegistration());
  ASSERT_TRUE(scenario.RunToExit());
  const absl::Status before = *scenario.exit_status;
  scenario.exit_status.reset();
  scenario.RestartChief();
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(*scenario.exit_status, before);
}

TEST(ChiefEnd, WhatAPsCallsAnInvalidArgumentIsNotBadInput) {
  Scenario scenario;
  scenario.ps_fault = [](int32_t ps_index, const PsCommand& command) -> std::optional<absl::Status> {
    if (command.has_install_shards()) return absl::InvalidArgumentError("shard 0: no such variable");
    return std::nullopt;
  };
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Reason(scenario), HasSubstr("no such variable"));
}

// ---- checkpoints ---------------------------------------------------------------------------------------------------

TEST(ChiefCheckpoints, OnlyTheNewestAreKept) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_epochs(4);
  options.job.mutable_checkpoint()->set_max_to_keep(2);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(scenario.deleted, ElementsAre("/checkpoints/scenario-0000000000000abc-epoch-00001-cut-2",
                                            "/checkpoints/scenario-0000000000000abc-epoch-00002-cut-3"));
  EXPECT_EQ(scenario.Status().report().checkpoint(), "/checkpoints/scenario-0000000000000abc-epoch-00004-cut-5");
}

TEST(ChiefCheckpoints, ComeEveryFewEpochsAndAtTheEnd) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_epochs(5);
  options.job.mutable_checkpoint()->set_every_epochs(2);
  options.job.mutable_checkpoint()->set_max_to_keep(10);
  options.job.mutable_evaluation()->set_every_epochs(3);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  std::vector<int64_t> epochs;
  for (const auto& [cut, checkpoint] : scenario.durable.checkpoints) epochs.push_back(checkpoint.epoch);
  EXPECT_THAT(epochs, ElementsAre(1, 3, 4));
  std::set<int64_t> evaluated;
  for (const auto& [key, record] : scenario.durable.evaluations) evaluated.insert(record.epoch);
  EXPECT_THAT(evaluated, ElementsAre(2, 4));
  for (const ScenarioPs& ps : scenario.ps) EXPECT_LE(ps.forks.size(), 1);
}

TEST(ChiefCheckpoints, TheManifestSaysWhatTheCutHolds) {
  Scenario scenario;
  ASSERT_TRUE(scenario.RunToExit());
  ASSERT_EQ(scenario.manifests.size(), 2);
  const CheckpointManifest& manifest = scenario.manifests[1];
  EXPECT_EQ(manifest.cut(), 3);
  EXPECT_EQ(manifest.optimizer(), "adam");
  EXPECT_EQ(manifest.ledger().epochs_complete(), 2);
  EXPECT_EQ(manifest.ledger().leases_per_epoch(), 5);
  EXPECT_EQ(manifest.ledger().examples_per_lease(), 8);
  EXPECT_EQ(manifest.ledger().epochs_size(), 2);
  EXPECT_EQ(manifest.variables(0).name(), "dense_0/kernel");
  ASSERT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.files(0).name(), "ps-00000-of-00002.safetensors");
  EXPECT_EQ(manifest.files(1).name(), "ps-00001-of-00002.safetensors");
}

TEST(ChiefCheckpoints, AtMostTwoEpochsWaitForThem) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_epochs(5);
  Scenario scenario(options);
  scenario.hold_manifests = true;
  EXPECT_FALSE(scenario.RunUntil([&] { return scenario.durable.epochs.size() > 2; }, 1000));
  EXPECT_EQ(scenario.durable.epochs.size(), 2);
  for (const ScenarioPs& ps : scenario.ps) EXPECT_EQ(ps.forks.size(), 2);
  scenario.hold_manifests = false;
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(FaultsOfCompleteRun(scenario), IsEmpty());
}

RestoreSource CheckpointOfOneEpoch() {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_epochs(1);
  Scenario first(options);
  first.RunToExit();
  RestoreSource restore;
  restore.set_directory("/checkpoints/first");
  *restore.mutable_manifest() = first.manifests.at(0);
  return restore;
}

TEST(ChiefRestore, GoesOnWithTheNextEpochUnderAHigherCut) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.restore = CheckpointOfOneEpoch();
  options.job.mutable_cluster()->set_worker_count(3);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_TRUE(scenario.exit_status->ok()) << Reason(scenario);
  EXPECT_THAT(scenario.violations, IsEmpty());
  for (const auto& [ps_index, command] : scenario.commands) {
    if (!command.has_install_shards()) continue;
    EXPECT_EQ(command.install_shards().restore().directory(), "/checkpoints/first");
    EXPECT_GT(command.install_shards().cut(), options.restore->manifest().cut());
  }
  // Only the second epoch was computed; the report has both.
  EXPECT_EQ(scenario.durable.batches.size(), 10);
  EXPECT_EQ(std::get<0>(scenario.durable.batches.begin()->first), 1);
  const JobReport report = scenario.Status().report();
  ASSERT_EQ(report.epochs_size(), 2);
  EXPECT_EQ(report.epochs(0).training_loss(), 1.125);
}

TEST(ChiefRestore, TakesTheLeasesOfTheCheckpointWhereTheJobLeavesThemOpen) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.restore = CheckpointOfOneEpoch();
  options.job.mutable_data()->set_examples_per_lease(0);
  options.job.mutable_cluster()->set_worker_count(3);
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_TRUE(scenario.exit_status->ok()) << Reason(scenario);
  EXPECT_EQ(scenario.durable.leases.size(), 5);
}

TEST(ChiefRestore, RefusesWhatDoesNotFitNamingBoth) {
  const std::vector<std::pair<std::string, std::function<void(RestoreSource*)>>> cases = {
      {"format_version", [](RestoreSource* restore) { restore->mutable_manifest()->set_format_version(9); }},
      {"sgd", [](RestoreSource* restore) { restore->mutable_manifest()->set_optimizer("sgd"); }},
      {"2 complete already",
       [](RestoreSource* restore) { restore->mutable_manifest()->mutable_ledger()->set_epochs_complete(2); }},
      {"open leases", [](RestoreSource* restore) { restore->mutable_manifest()->mutable_ledger()->add_open_leases(); }},
  };
  for (const auto& [named, spoil] : cases) {
    ChiefOptions options = Scenario::DefaultOptions();
    options.restore = CheckpointOfOneEpoch();
    spoil(&*options.restore);
    Scenario scenario(options);
    ASSERT_TRUE(scenario.exit_status.has_value()) << named;
    EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Reason(scenario), AllOf(HasSubstr(named), HasSubstr("/checkpoints/first")));
  }
}

TEST(ChiefRestore, OfAnotherModelFailsTheJobNamingBoth) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.restore = CheckpointOfOneEpoch();
  options.restore->mutable_manifest()->set_model_digest("0123456789abcdef");
  Scenario scenario(options);
  ASSERT_TRUE(scenario.RunToExit());
  EXPECT_THAT(Reason(scenario), AllOf(HasSubstr("0123456789abcdef"), HasSubstr("model")));
  EXPECT_EQ(scenario.exit_status->code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lagrange

#include "chief/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "chief/schema.h"
#include "chief/sqlite.h"
#include "common/job_config.h"
#include "common/status_matchers.h"

namespace lagrange {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

JobSpec ExampleJob() {
  JobSpec job;
  job.set_name("example");
  job.set_epochs(2);
  job.set_batch_size(8);
  return job;
}

BatchRecord ExampleBatch() {
  BatchRecord batch;
  batch.epoch = 1;
  batch.lease = 2;
  batch.batch = 3;
  batch.cut = 4;
  batch.incarnation = 5;
  batch.example_count = 6;
  batch.loss_sum = 7.5;
  return batch;
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string pattern = (fs::temp_directory_path() / "store_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~StoreTest() override { fs::remove_all(directory_); }

  std::unique_ptr<Store> MustOpen() {
    auto store = Store::Open(directory_, ExampleJob());
    EXPECT_THAT(store, IsOk());
    return *std::move(store);
  }

  // Commits in a process that is then killed without a chance to close anything.
  void CommitAndDie(const std::vector<Record>& records) {
    const pid_t child = fork();
    if (child == 0) {
      auto store = Store::Open(directory_, ExampleJob());
      if (!store.ok() || !(*store)->Commit(records).ok()) _exit(1);
      raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the commit failed";
  }

  // What the next start finds after these commits.
  Durable RoundTrip(const std::vector<Record>& records) {
    CommitAndDie(records);
    auto durable = MustOpen()->Load();
    EXPECT_THAT(durable, IsOk());
    return *std::move(durable);
  }

  int64_t Query(const char* sql) {
    auto database = Database::Open(directory_ + "/ledger.sqlite");
    EXPECT_THAT(database, IsOk());
    return *(*database)->QueryInt(sql);
  }

  std::string directory_;
};

TEST_F(StoreTest, NewStateIsEmptyButForTheJob) {
  const auto store = MustOpen();
  EXPECT_TRUE(store->is_new());
  const auto durable = store->Load();
  ASSERT_THAT(durable, IsOk());
  EXPECT_EQ(durable->job.name(), "example");
  EXPECT_TRUE(durable->counters.empty());
  EXPECT_TRUE(durable->batches.empty());
  EXPECT_FALSE(durable->has_model);
  EXPECT_FALSE(durable->ended);
}

TEST_F(StoreTest, CountersSurviveAKill) {
  const Durable durable = RoundTrip({CounterRecord{"term", 3}, CounterRecord{"cut", ~uint64_t{0} >> 1}});
  EXPECT_EQ(durable.counters, (std::map<std::string, uint64_t>{{"term", 3}, {"cut", ~uint64_t{0} >> 1}}));
  EXPECT_FALSE(MustOpen()->is_new());
}

TEST_F(StoreTest, MembersSurviveAKill) {
  MemberRecord member;
  member.incarnation = 9;
  member.role = WORKER;
  member.task_index = 1;
  member.process_id = 0xfedcba9876543210u;
  member.address = "[::1]:70";
  member.host = "host:17";
  member.state = MemberState::kEvicted;
  member.membership_sequence_reserved = 1024;
  const Durable durable = RoundTrip({member});
  ASSERT_EQ(durable.members.count(9), 1);
  const MemberRecord& read = durable.members.at(9);
  EXPECT_EQ(read.role, WORKER);
  EXPECT_EQ(read.task_index, 1);
  EXPECT_EQ(read.process_id, 0xfedcba9876543210u);
  EXPECT_EQ(read.address, "[::1]:70");
  EXPECT_EQ(read.host, "host:17");
  EXPECT_EQ(read.state, MemberState::kEvicted);
  EXPECT_EQ(read.membership_sequence_reserved, 1024);
}

TEST_F(StoreTest, LeasesSurviveAKillAndTakeTheLastValue) {
  LeaseRecord first;
  first.epoch = 1;
  first.lease = 2;
  first.holder = 7;
  first.grant_sequence = 11;
  first.start_clock = 12;
  LeaseRecord last = first;
  last.holder = 0;
  last.start_clock = -1;
  last.retired = true;
  const Durable durable = RoundTrip({first, last});
  ASSERT_EQ(durable.leases.size(), 1);
  const LeaseRecord& read = durable.leases.at({1, 2});
  EXPECT_EQ(read.holder, 0);
  EXPECT_EQ(read.grant_sequence, 11);
  EXPECT_EQ(read.start_clock, -1);
  EXPECT_TRUE(read.retired);
}

TEST_F(StoreTest, BatchesSurviveAKill) {
  BatchRecord skipped = ExampleBatch();
  skipped.batch = 4;
  skipped.state = BatchState::kSkipped;
  skipped.reason = "gradient element 5 is nan";
  const Durable durable = RoundTrip({ExampleBatch(), skipped});
  ASSERT_EQ(durable.batches.size(), 2);
  const BatchRecord& read = durable.batches.at({1, 2, 3});
  EXPECT_EQ(read.state, BatchState::kDone);
  EXPECT_EQ(read.cut, 4);
  EXPECT_EQ(read.incarnation, 5);
  EXPECT_EQ(read.example_count, 6);
  EXPECT_EQ(read.loss_sum, 7.5);
  EXPECT_EQ(read.reason, "");
  EXPECT_EQ(durable.batches.at({1, 2, 4}).state, BatchState::kSkipped);
  EXPECT_EQ(durable.batches.at({1, 2, 4}).reason, "gradient element 5 is nan");
}

TEST_F(StoreTest, ALossThatIsNoNumberIsKept) {
  BatchRecord batch = ExampleBatch();
  batch.loss_sum = std::numeric_limits<double>::quiet_NaN();
  const Durable durable = RoundTrip({batch, batch});
  EXPECT_TRUE(std::isnan(durable.batches.at({1, 2, 3}).loss_sum));
}

TEST_F(StoreTest, EvaluationsSurviveAKill) {
  EvaluationRecord evaluation;
  evaluation.epoch = 1;
  evaluation.first_record = 2048;
  evaluation.example_count = 100;
  evaluation.correct_count = 88;
  evaluation.loss_sum = 0.1;
  const Durable durable = RoundTrip({evaluation});
  ASSERT_EQ(durable.evaluations.count({1, 2048}), 1);
  EXPECT_EQ(durable.evaluations.at({1, 2048}).example_count, 100);
  EXPECT_EQ(durable.evaluations.at({1, 2048}).correct_count, 88);
  EXPECT_EQ(durable.evaluations.at({1, 2048}).loss_sum, 0.1);
}

EpochRecord ExampleEpoch() {
  EpochRecord epoch;
  epoch.epoch = 1;
  epoch.cut = 5;
  epoch.report.set_epoch(2);
  epoch.report.set_training_loss(0.25);
  epoch.report.set_test_loss(0.5);
  epoch.report.set_test_accuracy(0.875);
  epoch.report.set_examples_per_second(1000.5);
  epoch.report.set_staleness_mean(1.5);
  epoch.report.set_staleness_p99(4);
  epoch.report.set_staleness_clocks_max(3);
  epoch.report.set_examples_done(59999);
  epoch.report.set_examples_skipped(1);
  epoch.report.set_seconds(60.25);
  return epoch;
}

TEST_F(StoreTest, EpochsSurviveAKillWithTheirReport) {
  EpochRecord epoch = ExampleEpoch();
  epoch.checkpointed = true;
  const Durable durable = RoundTrip({epoch});
  ASSERT_EQ(durable.epochs.count(1), 1);
  const EpochRecord& read = durable.epochs.at(1);
  EXPECT_EQ(read.cut, 5);
  EXPECT_FALSE(read.evaluated);
  EXPECT_TRUE(read.checkpointed);
  EXPECT_EQ(read.report.SerializeAsString(), epoch.report.SerializeAsString());
}

TEST_F(StoreTest, BatchesOfACompleteEpochStayInTheFile) {
  BatchRecord open = ExampleBatch();
  open.epoch = 2;
  const Durable durable = RoundTrip({ExampleBatch(), ExampleEpoch(), open});
  EXPECT_EQ(durable.batches.size(), 1);
  EXPECT_EQ(durable.batches.count({2, 2, 3}), 1);
  EXPECT_EQ(Query("SELECT count(*) FROM batches"), 2);
}

TEST_F(StoreTest, EvaluationsStayInTheFileOnlyOnceTheirEpochIsEvaluated) {
  EvaluationRecord first;
  first.epoch = 1;
  EvaluationRecord second;
  second.epoch = 2;
  EpochRecord evaluated = ExampleEpoch();
  evaluated.evaluated = true;
  EpochRecord not_yet = ExampleEpoch();
  not_yet.epoch = 2;
  const Durable durable = RoundTrip({first, second, evaluated, not_yet});
  EXPECT_EQ(durable.evaluations.size(), 1);
  EXPECT_EQ(durable.evaluations.count({2, 0}), 1);
}

TEST_F(StoreTest, CheckpointsSurviveAKill) {
  CheckpointRecord listed{5, 1, "/data/cut-5", CheckpointState::kListed};
  CheckpointRecord deleted{4, 0, "/data/cut-4", CheckpointState::kDeleted};
  const Durable durable = RoundTrip({listed, deleted});
  ASSERT_EQ(durable.checkpoints.size(), 2);
  EXPECT_EQ(durable.checkpoints.at(5).epoch, 1);
  EXPECT_EQ(durable.checkpoints.at(5).directory, "/data/cut-5");
  EXPECT_EQ(durable.checkpoints.at(5).state, CheckpointState::kListed);
  EXPECT_EQ(durable.checkpoints.at(4).state, CheckpointState::kDeleted);
}

TEST_F(StoreTest, TheLastShardMapSurvivesAKill) {
  ShardMapRecord old;
  old.map.set_version(1);
  ShardMapRecord map;
  map.map.set_version(2);
  map.map.add_shards()->set_row_end(70);
  map.map.add_ps()->set_address("ps-0:7000");
  const Durable durable = RoundTrip({old, map});
  EXPECT_EQ(durable.map.SerializeAsString(), map.map.SerializeAsString());
}

TEST_F(StoreTest, TheModelSurvivesAKillInItsOrder) {
  ModelRecord model;
  model.train_records = 60000;
  model.test_records = 10000;
  for (const char* name : {"z/kernel", "a/bias"}) {
    VariableSpec variable;
    variable.set_name(name);
    variable.add_shape(784);
    variable.add_shape(10);
    variable.mutable_initializer()->mutable_constant()->set_value(0.5);
    model.variables.push_back(variable);
  }
  const Durable durable = RoundTrip({model, model});
  ASSERT_TRUE(durable.has_model);
  EXPECT_EQ(durable.model.train_records, 60000);
  EXPECT_EQ(durable.model.test_records, 10000);
  ASSERT_EQ(durable.model.variables.size(), 2);
  EXPECT_EQ(durable.model.variables[0].SerializeAsString(), model.variables[0].SerializeAsString());
  EXPECT_EQ(durable.model.variables[1].name(), "a/bias");
}

TEST_F(StoreTest, TheEndSurvivesAKill) {
  const Durable durable = RoundTrip({EndRecord{absl::StatusCode::kInvalidArgument, "worker 1: bad data"}});
  EXPECT_TRUE(durable.ended);
  EXPECT_EQ(durable.end.code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(durable.end.reason, "worker 1: bad data");
}

TEST_F(StoreTest, TheRestoreIsKeptOnceTheJobHasBegun) {
  RestoreSource restore;
  restore.set_directory("/data/cut-7");
  restore.mutable_manifest()->set_cut(7);
  {
    const auto store = MustOpen();
    ASSERT_THAT(store->SaveRestore(restore), IsOk());
    ASSERT_THAT(store->Commit({CounterRecord{"term", 1}}), IsOk());
  }
  const auto read = MustOpen()->LoadRestore();
  ASSERT_THAT(read, IsOk());
  ASSERT_TRUE(read->has_value());
  EXPECT_EQ((*read)->SerializeAsString(), restore.SerializeAsString());
}

TEST_F(StoreTest, ASettledBatchMayBeWrittenAgainUnchanged) {
  const auto store = MustOpen();
  ASSERT_THAT(store->Commit({ExampleBatch()}), IsOk());
  EXPECT_THAT(store->Commit({ExampleBatch()}), IsOk());
  EXPECT_EQ(Query("SELECT sum(example_count) FROM batches"), 6);
}

TEST_F(StoreTest, ASettledBatchCannotBeWrittenDifferently) {
  const auto store = MustOpen();
  ASSERT_THAT(store->Commit({ExampleBatch()}), IsOk());
  BatchRecord other_count = ExampleBatch();
  other_count.example_count = 7;
  BatchRecord other_reporter = ExampleBatch();
  other_reporter.incarnation = 6;
  BatchRecord other_state = ExampleBatch();
  other_state.state = BatchState::kSkipped;
  BatchRecord other_cut = ExampleBatch();
  other_cut.cut = 3;
  BatchRecord other_loss = ExampleBatch();
  other_loss.loss_sum = 7.25;
  for (const BatchRecord& other : {other_count, other_reporter, other_state, other_cut, other_loss}) {
    EXPECT_THAT(store->Commit({other}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("batch 3 of lease 2, epoch 1")));
  }
  EXPECT_EQ(Query("SELECT sum(example_count) FROM batches WHERE state = 'done' AND incarnation = 5 AND cut = 4"), 6);
}

TEST_F(StoreTest, NotEvenSqlChangesASettledBatch) {
  ASSERT_THAT(MustOpen()->Commit({ExampleBatch()}), IsOk());
  auto database = Database::Open(directory_ + "/ledger.sqlite");
  ASSERT_THAT(database, IsOk());
  EXPECT_THAT((*database)->Execute("UPDATE batches SET example_count = 0"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a settled batch is never changed")));
}

TEST_F(StoreTest, AFailedRecordTakesItsWholeTransactionBack) {
  const auto store = MustOpen();
  ASSERT_THAT(store->Commit({ExampleBatch()}), IsOk());
  BatchRecord other = ExampleBatch();
  other.example_count = 7;
  EXPECT_FALSE(store->Commit({CounterRecord{"cut", 8}, other}).ok());
  EXPECT_EQ(store->Load()->counters.count("cut"), 0);
}

TEST_F(StoreTest, ACounterNeverFalls) {
  const auto store = MustOpen();
  ASSERT_THAT(store->Commit({CounterRecord{"term", 5}}), IsOk());
  EXPECT_THAT(store->Commit({CounterRecord{"term", 5}}), IsOk());
  EXPECT_THAT(store->Commit({CounterRecord{"term", 4}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("counter term: expected at least 5, got 4")));
}

TEST_F(StoreTest, StateOfAnotherJobIsRefusedNamingBoth) {
  ASSERT_THAT(MustOpen()->Commit({CounterRecord{"term", 1}}), IsOk());
  JobSpec other = ExampleJob();
  other.set_batch_size(16);
  ASSERT_NE(JobDigest(other), JobDigest(ExampleJob()));
  EXPECT_THAT(Store::Open(directory_, other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(directory_), HasSubstr(JobDigest(other)), HasSubstr(JobDigest(ExampleJob())),
                             HasSubstr("--state_dir"))));
}

TEST_F(StoreTest, StateOfAJobOfAnotherNameIsRefused) {
  ASSERT_THAT(MustOpen()->Commit({CounterRecord{"term", 1}}), IsOk());
  JobSpec other = ExampleJob();
  other.set_name("other");
  EXPECT_THAT(Store::Open(directory_, other),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("\"other\""), HasSubstr("\"example\""))));
}

TEST_F(StoreTest, MoreEpochsAreTheSameJob) {
  ASSERT_THAT(MustOpen()->Commit({CounterRecord{"term", 1}}), IsOk());
  JobSpec longer = ExampleJob();
  longer.set_epochs(5);
  EXPECT_THAT(Store::Open(directory_, longer), IsOk());
}

TEST_F(StoreTest, LoadsTheJobThatWasSavedNotTheOneItWasOpenedWith) {
  JobSpec changed = ExampleJob();
  changed.mutable_consistency()->mutable_ssp()->set_staleness(5);
  ASSERT_THAT(MustOpen()->Commit({CounterRecord{"term", 1}}), IsOk());
  {
    const auto store = Store::Open(directory_, changed);
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ((*store)->Load()->job.SerializeAsString(), ExampleJob().SerializeAsString());
    ASSERT_THAT((*store)->SaveJob(changed), IsOk());
  }
  EXPECT_EQ(MustOpen()->Load()->job.SerializeAsString(), changed.SerializeAsString());
}

TEST_F(StoreTest, AJobThatNeverBeganMayBeReplaced) {
  MustOpen();
  JobSpec other = ExampleJob();
  other.set_batch_size(16);
  EXPECT_THAT(Store::Open(directory_, other), IsOk());
}

TEST_F(StoreTest, ADirectoryOfALiveChiefIsRefused) {
  const auto store = MustOpen();
  EXPECT_THAT(
      Store::Open(directory_, ExampleJob()),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr(directory_), HasSubstr("another chief"))));
}

TEST_F(StoreTest, AFileThatIsNoDatabaseIsNamed) {
  std::ofstream(directory_ + "/ledger.sqlite") << std::string(8192, 'x');
  EXPECT_THAT(Store::Open(directory_, ExampleJob()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(directory_ + "/ledger.sqlite")));
}

TEST_F(StoreTest, ADamagedPageIsFound) {
  std::vector<Record> records{CounterRecord{"term", 1}};
  for (int i = 0; i < 2000; ++i) {
    BatchRecord batch = ExampleBatch();
    batch.batch = i;
    records.push_back(batch);
  }
  ASSERT_THAT(MustOpen()->Commit(records), IsOk());
  const std::string path = directory_ + "/ledger.sqlite";
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<int64_t>(fs::file_size(path)) - 3 * 4096);
  file << std::string(3 * 4096, '\x5a');
  file.close();
  EXPECT_THAT(Store::Open(directory_, ExampleJob()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
}

TEST_F(StoreTest, ADatabaseOfAnotherProgramIsRefused) {
  {
    auto database = Database::Open(directory_ + "/ledger.sqlite");
    ASSERT_THAT((*database)->Execute("CREATE TABLE recipes (name TEXT)"), IsOk());
  }
  EXPECT_THAT(Store::Open(directory_, ExampleJob()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected a ledger")));
}

TEST_F(StoreTest, AnotherSchemaVersionIsRefusedNamingBoth) {
  MustOpen();
  {
    auto database = Database::Open(directory_ + "/ledger.sqlite");
    ASSERT_THAT((*database)->Execute("PRAGMA user_version = 99"), IsOk());
  }
  EXPECT_THAT(Store::Open(directory_, ExampleJob()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("expected ", kSchemaVersion, ", got 99"))));
}

}  // namespace
}  // namespace lagrange

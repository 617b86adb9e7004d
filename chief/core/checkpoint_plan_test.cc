#include "chief/core/checkpoint_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CheckpointPlan::Options Options(int32_t max_to_keep) {
  CheckpointPlan::Options options;
  options.job_name = "mnist";
  options.run_id = 0xabc;
  options.directory = "/shared/";
  options.ps_count = 2;
  options.max_to_keep = max_to_keep;
  return options;
}

PsCommandResult Wrote(const std::string& name) {
  PsCommandResult result;
  result.add_files()->set_name(name);
  result.add_slot_names("adam_m");
  return result;
}

TEST(CheckpointPlan, NamesDirectoryAndFilesForPeople) {
  const CheckpointPlan plan(Options(1), {});
  const WriteCheckpoint command = plan.CommandFor(2, 4, 1);
  EXPECT_EQ(command.directory(), "/shared/mnist-0000000000000abc-epoch-00003-cut-4");
  EXPECT_EQ(command.file_stem(), "ps-00001-of-00002");
}

TEST(CheckpointPlan, IsWholeWithTheLastPsAndARepeatChangesNothing) {
  CheckpointPlan plan(Options(1), {});
  plan.Begin(0, 2);
  EXPECT_FALSE(plan.FilesWritten(2, 1, Wrote("b")));
  EXPECT_FALSE(plan.FilesWritten(2, 1, Wrote("c")));
  EXPECT_FALSE(plan.FilesWritten(9, 0, Wrote("d")));
  EXPECT_TRUE(plan.FilesWritten(2, 0, Wrote("a")));
  EXPECT_FALSE(plan.FilesWritten(2, 0, Wrote("e")));
  CheckpointManifest manifest;
  plan.AddFiles(2, &manifest);
  ASSERT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.files(0).name(), "a");
  EXPECT_EQ(manifest.files(1).name(), "b");
  EXPECT_THAT(manifest.slot_names(), ElementsAre("adam_m"));
}

TEST(CheckpointPlan, TheOldestGoWhenThereAreTooMany) {
  std::map<uint64_t, CheckpointRecord> listed;
  listed[2] = {2, 0, "two", CheckpointState::kListed};
  listed[3] = {3, 1, "three", CheckpointState::kListed};
  CheckpointPlan plan(Options(2), listed);
  plan.Begin(2, 4);
  std::vector<Record> records;
  EXPECT_THAT(plan.List(4, &records), ElementsAre("two"));
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(std::get<CheckpointRecord>(records[1]).state, CheckpointState::kDeleted);
  EXPECT_THAT(plan.List(4, &records), IsEmpty());
  EXPECT_EQ(records.size(), 2);
}

TEST(CheckpointPlan, ADeletionThatACrashMayHaveCutShortIsRepeated) {
  std::map<uint64_t, CheckpointRecord> listed;
  for (uint64_t cut = 1; cut <= 9; ++cut) {
    listed[cut] = {cut, 0, std::to_string(cut), CheckpointState::kDeleted};
  }
  EXPECT_THAT(CheckpointPlan(Options(1), listed).DeletionsToRepeat(), ElementsAre("6", "7", "8", "9"));
}

TEST(ModelDigest, TellsNamesAndShapesApart) {
  VariableSpec a;
  a.set_name("a");
  a.add_shape(2);
  a.add_shape(3);
  VariableSpec turned = a;
  turned.set_shape(0, 3);
  turned.set_shape(1, 2);
  VariableSpec renamed = a;
  renamed.set_name("b");
  VariableSpec initialized = a;
  initialized.mutable_initializer()->mutable_zeros();
  EXPECT_NE(ModelDigest({a}), ModelDigest({turned}));
  EXPECT_NE(ModelDigest({a}), ModelDigest({renamed}));
  EXPECT_NE(ModelDigest({a, renamed}), ModelDigest({renamed, a}));
  // Initial values don't matter to a checkpoint.
  EXPECT_EQ(ModelDigest({a}), ModelDigest({initialized}));
}

TEST(CheckRestoredModel, RefusesAnotherLeaseTable) {
  BatchCutter::Options options;
  options.record_count = 40;
  options.batch_size = 4;
  options.examples_per_lease = 8;
  const BatchCutter cutter = *BatchCutter::Create(options);
  RestoreSource restore;
  restore.mutable_manifest()->set_model_digest(ModelDigest({}));
  restore.mutable_manifest()->mutable_ledger()->set_epochs_complete(1);
  restore.mutable_manifest()->mutable_ledger()->set_leases_per_epoch(5);
  EXPECT_TRUE(CheckRestoredModel(restore, {}, cutter).ok());
  restore.mutable_manifest()->mutable_ledger()->set_leases_per_epoch(6);
  EXPECT_FALSE(CheckRestoredModel(restore, {}, cutter).ok());
}

}  // namespace
}  // namespace lagrange

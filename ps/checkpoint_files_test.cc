#include "ps/checkpoint_files.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_matchers.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/safetensors.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BufferRef BufferOf(const std::vector<float>& values) {
  BufferRef buffer = BufferRef::Allocate(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), buffer.MutableValues().begin());
  return buffer;
}

std::vector<float> ValuesOf(const BufferRef& buffer) {
  return std::vector<float>(buffer.values().begin(), buffer.values().end());
}

// A fresh directory for the running test.
std::string TestDirectory() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string path = JoinPath(testing::TempDir(), absl::StrCat(test->test_suite_name(), ".", test->name()));
  EXPECT_THAT(MakeDirectories(path), IsOk());
  return path;
}

// The table of B28: 10 x 4, row r = [r, r, r, r], its slot "accumulator" 100 + r.
constexpr int64_t kRows = 10;
constexpr int64_t kColumns = 4;

std::vector<float> RowValues(int64_t begin, int64_t end, float offset) {
  std::vector<float> values;
  for (int64_t row = begin; row < end; ++row) values.insert(values.end(), kColumns, offset + static_cast<float>(row));
  return values;
}

ShardSnapshot TableRows(int64_t begin, int64_t end) {
  ShardSnapshot shard;
  shard.variable = "table/kernel";
  shard.variable_shape = {kRows, kColumns};
  shard.row_begin = begin;
  shard.row_end = end;
  shard.version = 17;
  shard.parameters = BufferOf(RowValues(begin, end, 0));
  shard.slot_names = {"accumulator"};
  shard.slots = {BufferOf(RowValues(begin, end, 100))};
  LeaseInterval* retired = shard.dedupe.add_retired();
  retired->set_begin(0);
  retired->set_end(3);
  return shard;
}

WantedShard WantedRows(uint32_t number, int64_t begin, int64_t end) {
  return {number, "table/kernel", {kRows, kColumns}, begin, end};
}

CheckpointFileIdentity FileOfPs(int index, int count) {
  return {absl::StrCat("ps-0000", index, "-of-0000", count), /*cut=*/7, /*generation=*/1, /*incarnation=*/4};
}

// What the chief puts around the files.
RestoreSource SourceOf(const std::string& directory, const std::vector<CheckpointFile>& files) {
  RestoreSource source;
  source.set_directory(directory);
  CheckpointManifest* manifest = source.mutable_manifest();
  manifest->set_format_version(kCheckpointFormatVersion);
  manifest->set_job_digest("job");
  manifest->set_model_digest("model");
  manifest->set_optimizer("adagrad");
  manifest->mutable_ledger()->set_leases_per_epoch(3);
  manifest->mutable_ledger()->set_batch_size(1);
  manifest->mutable_ledger()->set_examples_per_lease(1);
  VariableEntry* variable = manifest->add_variables();
  variable->set_name("table/kernel");
  variable->add_shape(kRows);
  variable->add_shape(kColumns);
  for (const CheckpointFile& file : files) *manifest->add_files() = file;
  return source;
}

// The table, saved by a ps for each of these lists of shards.
RestoreSource SaveShards(const std::string& directory, const std::vector<std::vector<ShardSnapshot>>& ps) {
  std::vector<CheckpointFile> files;
  for (size_t i = 0; i < ps.size(); ++i) {
    const auto file = WriteShardsFile(directory, FileOfPs(static_cast<int>(i), static_cast<int>(ps.size())), ps[i]);
    EXPECT_THAT(file, IsOk());
    if (file.ok()) files.push_back(*file);
  }
  return SourceOf(directory, files);
}

RestoreSource SaveTableByThree(const std::string& directory) {
  return SaveShards(directory, {{TableRows(0, 4)}, {TableRows(4, 7)}, {TableRows(7, 10)}});
}

// Changes a file behind the manifest's back.
void Rewrite(const std::string& path, const std::function<void(std::string*)>& change) {
  auto contents = ReadFile(path, 1 << 20);
  ASSERT_THAT(contents, IsOk());
  change(&*contents);
  ASSERT_THAT(WriteFileAtomically(path, *contents), IsOk());
}

// ---- writing ----

TEST(WriteShardsFile, NamesTheFileByCutGenerationAndIncarnation) {
  const auto file = WriteShardsFile(TestDirectory(), {"ps-00000-of-00002", 12, 3, 45}, {TableRows(0, 10)});
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(file->name(), "ps-00000-of-00002.c12.g3.i45.safetensors");
  EXPECT_TRUE(FileExists(JoinPath(TestDirectory(), file->name())));
}

TEST(WriteShardsFile, NamesWholeVariablesPlainlyAndPartsByTheirRows) {
  const std::string directory = TestDirectory();
  ShardSnapshot bias;
  bias.variable = "bias";
  bias.variable_shape = {2};
  bias.row_end = 2;
  bias.parameters = BufferOf({1, 2});
  bias.slot_names = {"accumulator"};
  bias.slots = {BufferOf({3, 4})};
  const auto file = WriteShardsFile(directory, FileOfPs(0, 1), {TableRows(0, 4), bias});
  ASSERT_THAT(file, IsOk());
  const auto opened = SafetensorsFile::Open(JoinPath(directory, file->name()));
  ASSERT_THAT(opened, IsOk());
  std::vector<std::string> names;
  for (const TensorEntry& tensor : (*opened)->header().tensors) names.push_back(tensor.name);
  EXPECT_THAT(names,
              ElementsAre("bias", "bias/accumulator", "table/kernel#rows=0:4", "table/kernel/accumulator#rows=0:4"));
}

TEST(WriteShardsFile, RefusesAStemThatLeadsElsewhere) {
  EXPECT_THAT(WriteShardsFile(TestDirectory(), {"../ps", 1, 1, 1}, {TableRows(0, 10)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("../ps")));
}

TEST(WriteShardsFile, RefusesShardsOfUnequalSlots) {
  ShardSnapshot other = TableRows(4, 10);
  other.slot_names = {"m"};
  EXPECT_THAT(WriteShardsFile(TestDirectory(), FileOfPs(0, 1), {TableRows(0, 4), other}),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("(m)"), HasSubstr("(accumulator)"))));
}

TEST(WriteShardsFile, LeavesAnOlderFileWholeWhenItFails) {
  const std::string directory = TestDirectory();
  const auto good = WriteShardsFile(directory, FileOfPs(0, 1), {TableRows(0, 10)});
  ASSERT_THAT(good, IsOk());
  ShardSnapshot broken = TableRows(0, 10);
  broken.parameters = BufferOf({1, 2, 3});
  EXPECT_THAT(WriteShardsFile(directory, FileOfPs(0, 1), {broken}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ReadShards(SourceOf(directory, {*good}), {WantedRows(0, 0, 10)}), IsOk());
}

// ---- restoring ----

class RestoreOntoPsCount : public testing::TestWithParam<int64_t> {};

TEST_P(RestoreOntoPsCount, EveryRowAndSlotIsExact) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  const int64_t ps_count = GetParam();
  int64_t rows_restored = 0;
  for (int64_t ps = 0; ps < ps_count; ++ps) {
    // The first kRows % ps_count ps take a row more; with 16 ps, six own nothing.
    const int64_t begin = ps * (kRows / ps_count) + std::min(ps, kRows % ps_count);
    const int64_t end = begin + kRows / ps_count + (ps < kRows % ps_count ? 1 : 0);
    std::vector<WantedShard> wanted;
    if (begin < end) wanted.push_back(WantedRows(static_cast<uint32_t>(ps), begin, end));
    const auto shards = ReadShards(source, wanted);
    ASSERT_THAT(shards, IsOk());
    ASSERT_EQ(shards->size(), wanted.size());
    for (const ShardSnapshot& shard : *shards) {
      EXPECT_EQ(shard.shard, ps);
      EXPECT_EQ(ValuesOf(shard.parameters), RowValues(begin, end, 0));
      EXPECT_THAT(shard.slot_names, ElementsAre("accumulator"));
      ASSERT_EQ(shard.slots.size(), 1);
      EXPECT_EQ(ValuesOf(shard.slots[0]), RowValues(begin, end, 100));
      EXPECT_EQ(shard.version, 17);
      ASSERT_EQ(shard.dedupe.retired_size(), 1);
      EXPECT_EQ(shard.dedupe.retired(0).end(), 3);
      rows_restored += end - begin;
    }
  }
  EXPECT_EQ(rows_restored, kRows);
}

INSTANTIATE_TEST_SUITE_P(OneTwoFourSixteen, RestoreOntoPsCount, testing::Values(1, 2, 4, 16));

TEST(ReadShards, RestoresEveryBit) {
  const std::string directory = TestDirectory();
  std::vector<float> values(kRows * kColumns, -0.0f);
  values[0] = std::nanf("0x77");
  values[1] = 1e-45f;
  ShardSnapshot shard = TableRows(0, 10);
  shard.parameters = BufferOf(values);
  const auto restored = ReadShards(SaveShards(directory, {{shard}}), {WantedRows(0, 0, 10)});
  ASSERT_THAT(restored, IsOk());
  const std::vector<float> read = ValuesOf((*restored)[0].parameters);
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(float)), 0);
}

TEST(ReadShards, RestoresAScalar) {
  const std::string directory = TestDirectory();
  ShardSnapshot scalar;
  scalar.variable = "scale";
  scalar.row_end = 1;
  scalar.parameters = BufferOf({2.5f});
  RestoreSource source = SaveShards(directory, {{scalar}});
  source.mutable_manifest()->add_variables()->set_name("scale");
  const auto restored = ReadShards(source, {WantedShard{0, "scale", {}, 0, 1}});
  ASSERT_THAT(restored, IsOk());
  EXPECT_THAT(ValuesOf((*restored)[0].parameters), ElementsAre(2.5f));
}

TEST(ReadShards, APsThatOwnsNothingWritesAFileAndReadsNone) {
  const std::string directory = TestDirectory();
  const RestoreSource source = SaveShards(directory, {{TableRows(0, 10)}, {}});
  ASSERT_EQ(source.manifest().files_size(), 2);
  const auto none = ReadShards(source, {});
  ASSERT_THAT(none, IsOk());
  EXPECT_TRUE(none->empty());
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}), IsOk());
}

// ---- dedupe state ----

ShardSnapshot WithOpenLease(ShardSnapshot shard, const std::vector<int32_t>& batches) {
  LeaseBitmap* open = shard.dedupe.add_open();
  open->set_lease_number(5);
  open->mutable_applied_batches()->Assign(batches.begin(), batches.end());
  return shard;
}

TEST(ReadShards, PiecesThatAppliedTheSameBatchesBecomeOneShard) {
  const RestoreSource source = SaveShards(
      TestDirectory(), {{WithOpenLease(TableRows(0, 4), {2, 0})}, {WithOpenLease(TableRows(4, 10), {0, 2})}});
  const auto restored = ReadShards(source, {WantedRows(0, 0, 10)});
  ASSERT_THAT(restored, IsOk());
  ASSERT_EQ((*restored)[0].dedupe.open_size(), 1);
  EXPECT_THAT((*restored)[0].dedupe.open(0).applied_batches(), ElementsAre(0, 2));
}

TEST(ReadShards, PiecesThatAppliedOtherBatchesAreRefused) {
  const RestoreSource source =
      SaveShards(TestDirectory(), {{WithOpenLease(TableRows(0, 4), {0, 2})}, {WithOpenLease(TableRows(4, 10), {0})}});
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rows [4, 10)"), HasSubstr("other batches"), HasSubstr("shard_bytes"))));
  // In its own layout the same checkpoint is as good as any.
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 4), WantedRows(1, 4, 10)}), IsOk());
}

TEST(ReadShards, PiecesOfOtherVersionsAreRefused) {
  ShardSnapshot later = TableRows(4, 10);
  later.version = 18;
  EXPECT_THAT(ReadShards(SaveShards(TestDirectory(), {{TableRows(0, 4)}, {later}}), {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another version")));
}

TEST(ReadShards, IntervalsWrittenInPiecesAreTheSameState) {
  ShardSnapshot pieces = TableRows(4, 10);
  pieces.dedupe.Clear();
  for (const auto& [begin, end] : {std::pair<int, int>{2, 3}, {0, 2}}) {
    LeaseInterval* interval = pieces.dedupe.add_retired();
    interval->set_begin(begin);
    interval->set_end(end);
  }
  EXPECT_THAT(ReadShards(SaveShards(TestDirectory(), {{TableRows(0, 4)}, {pieces}}), {WantedRows(0, 0, 10)}), IsOk());
}

TEST(ReadShards, AShardThatIsCutUpKeepsItsStateInEachPart) {
  const RestoreSource source = SaveShards(TestDirectory(), {{WithOpenLease(TableRows(0, 10), {1})}});
  const auto restored = ReadShards(source, {WantedRows(0, 0, 5), WantedRows(1, 5, 10)});
  ASSERT_THAT(restored, IsOk());
  for (const ShardSnapshot& shard : *restored) {
    ASSERT_EQ(shard.dedupe.open_size(), 1);
    EXPECT_EQ(shard.dedupe.open(0).lease_number(), 5);
    EXPECT_THAT(shard.dedupe.open(0).applied_batches(), ElementsAre(1));
  }
}

// ---- damage (B24) ----

TEST(ReadShards, AFlippedBitIsFoundAndTheFileNamed) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  const std::string path = JoinPath(source.directory(), source.manifest().files(1).name());
  Rewrite(path, [](std::string* contents) { (*contents)[contents->size() / 2] ^= 0x10; });
  // Also for a ps that needs no row of that file.
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 4)}),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr("crc32c"))));
}

TEST(ReadShards, EightBytesCutOffAreFoundAndTheFileNamed) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  const CheckpointFile& file = source.manifest().files(2);
  const std::string path = JoinPath(source.directory(), file.name());
  Rewrite(path, [](std::string* contents) { contents->resize(contents->size() - 8); });
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr(absl::StrCat(file.size_bytes())),
                                                          HasSubstr(absl::StrCat(file.size_bytes() - 8)))));
}

TEST(ReadShards, ADeletedFileIsNamed) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  const std::string path = JoinPath(source.directory(), source.manifest().files(0).name());
  ASSERT_THAT(RemoveFile(path), IsOk());
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 4, 10)}), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

// Writes files of growing cuts, telling each by a byte before it begins, until it is killed.
[[noreturn]] void WriteForEver(const std::string& directory, int begun) {
  ShardSnapshot shard;
  shard.variable = "big";
  shard.variable_shape = {1 << 16};
  shard.row_end = 1 << 16;
  shard.parameters = BufferOf(std::vector<float>(1 << 16, 3.0f));
  for (uint64_t cut = 8;; ++cut) {
    if (write(begun, "x", 1) != 1) _exit(1);
    if (!WriteShardsFile(directory, {"ps-00000-of-00001", cut, 1, 1}, {shard}).ok()) _exit(1);
  }
}

TEST(WriteShardsFile, AWriterThatIsKilledLeavesWholeFilesAndTheEarlierCheckpoint) {
  const std::string directory = TestDirectory();
  const RestoreSource source = SaveTableByThree(directory);
  volatile int spun = 0;
  for (int attempt = 0; attempt < 50; ++attempt) {
    int begun[2];
    ASSERT_EQ(pipe(begun), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) WriteForEver(directory, begun[1]);
    char byte;
    ASSERT_EQ(read(begun[0], &byte, 1), 1);
    // Each attempt kills a little later in the write.
    for (int i = 0; i < attempt * 20000; ++i) spun = spun + 1;
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    close(begun[0]);
    close(begun[1]);
  }
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}), IsOk());
  const auto names = ListDirectory(directory);
  ASSERT_THAT(names, IsOk());
  int temporary = 0;
  for (const std::string& name : *names) {
    if (IsTemporaryName(name)) {
      ++temporary;
    } else {
      EXPECT_THAT(SafetensorsFile::Open(JoinPath(directory, name)), IsOk());
    }
  }
  // Some writes were indeed cut off.
  EXPECT_GT(temporary, 0);
}

// ---- other contents than expected ----

TEST(ReadShards, RowsThatNoFileHoldsAreNamed) {
  const RestoreSource source = SaveShards(TestDirectory(), {{TableRows(0, 4)}, {TableRows(7, 10)}});
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 2, 8)}),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("row 4"), HasSubstr("table/kernel"))));
}

TEST(ReadShards, RowsThatTwoFilesHoldAreRefused) {
  const RestoreSource source = SaveShards(TestDirectory(), {{TableRows(0, 6)}, {TableRows(5, 10)}});
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("row 5")));
}

TEST(ReadShards, AnotherShapeNamesBoth) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  EXPECT_THAT(ReadShards(source, {WantedShard{0, "table/kernel", {10, 5}, 0, 10}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("[10, 4]"), HasSubstr("[10, 5]"))));
}

TEST(ReadShards, AnUnknownVariableIsNamed) {
  const RestoreSource source = SaveTableByThree(TestDirectory());
  EXPECT_THAT(ReadShards(source, {WantedShard{0, "other/kernel", {10, 4}, 0, 10}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("other/kernel")));
}

TEST(ReadShards, SlotsThatTheManifestDoesntNameAreRefused) {
  RestoreSource source = SaveTableByThree(TestDirectory());
  source.mutable_manifest()->add_slot_names("m");
  EXPECT_THAT(ReadShards(source, {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("(accumulator)"), HasSubstr("(m)"))));
}

TEST(ReadShards, AnUnknownFormatVersionNamesBoth) {
  RestoreSource source = SaveTableByThree(TestDirectory());
  source.mutable_manifest()->set_format_version(2);
  EXPECT_THAT(ReadShards(source, {}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("got 2")));
}

TEST(ReadShards, AFileThatIsNoneOfACheckpointIsNamed) {
  const std::string directory = TestDirectory();
  const auto written = WriteSafetensors(JoinPath(directory, "foreign.safetensors"), {}, {});
  ASSERT_THAT(written, IsOk());
  CheckpointFile file;
  file.set_name("foreign.safetensors");
  file.set_size_bytes(written->size_bytes);
  file.set_crc32c(written->crc32c);
  EXPECT_THAT(ReadShards(SourceOf(directory, {file}), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("foreign.safetensors")));
}

TEST(ReadShards, AMissingSlotTensorIsNamed) {
  const std::string directory = TestDirectory();
  const std::vector<float> values = RowValues(0, 10, 0);
  const auto written =
      WriteSafetensors(JoinPath(directory, "a.safetensors"),
                       {{"lagrange", R"({"shards":[{"variable":"table/kernel","row_end":"10"}],"slot_names":["m"]})"}},
                       {FloatTensor("table/kernel", {10, 4}, values)});
  ASSERT_THAT(written, IsOk());
  CheckpointFile file;
  file.set_name("a.safetensors");
  file.set_size_bytes(written->size_bytes);
  file.set_crc32c(written->crc32c);
  EXPECT_THAT(ReadShards(SourceOf(directory, {file}), {WantedRows(0, 0, 10)}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("table/kernel/m")));
}

// ---- the map ----

ShardMap MapOfTwoShards() {
  ShardMap map;
  map.set_version(1);
  VariableSpec* variable = map.add_variables();
  variable->set_name("table/kernel");
  variable->add_shape(kRows);
  variable->add_shape(kColumns);
  for (int i = 0; i < 2; ++i) {
    map.add_ps()->set_ps_index(i);
    ShardPlacement* placement = map.add_shards();
    placement->set_shard(static_cast<uint32_t>(i));
    placement->set_row_begin(i == 0 ? 0 : 6);
    placement->set_row_end(i == 0 ? 6 : 10);
    placement->set_element_begin(placement->row_begin() * kColumns);
    placement->set_element_end(placement->row_end() * kColumns);
    placement->set_ps_index(i);
  }
  return map;
}

TEST(ShardsOfPs, AreThoseThatTheMapPlacesThere) {
  const auto wanted = ShardsOfPs(MapOfTwoShards(), 1);
  ASSERT_THAT(wanted, IsOk());
  ASSERT_EQ(wanted->size(), 1);
  EXPECT_EQ((*wanted)[0].shard, 1);
  EXPECT_EQ((*wanted)[0].variable, "table/kernel");
  EXPECT_THAT((*wanted)[0].variable_shape, ElementsAre(kRows, kColumns));
  EXPECT_EQ((*wanted)[0].row_begin, 6);
  EXPECT_EQ((*wanted)[0].row_end, 10);
}

TEST(ShardsOfPs, AMapThatIsNotWholeIsRefused) {
  ShardMap map = MapOfTwoShards();
  map.mutable_shards(1)->set_variable(9);
  EXPECT_THAT(ShardsOfPs(map, 1), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lagrange

#include "tests/golden/golden_checkpoint.h"

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/manifest_file.h"
#include "ps/checkpoint_files.h"

namespace lagrange {
namespace {

constexpr char kVersion1[] = "tests/golden/checkpoint_v1";

absl::StatusOr<std::vector<ShardSnapshot>> Restore(const std::string& directory,
                                                   const std::vector<WantedShard>& wanted) {
  RestoreSource source;
  source.set_directory(directory);
  auto manifest = ReadManifest(directory);
  if (!manifest.ok()) return manifest.status();
  *source.mutable_manifest() = *std::move(manifest);
  return ReadShards(source, wanted);
}

// Bit for bit what the formula says, wherever the rows lie.
void ExpectGoldenValues(const ShardSnapshot& shard, int64_t row_elements) {
  ASSERT_THAT(shard.slot_names, testing::ElementsAre("m", "v"));
  const int64_t begin = shard.row_begin * row_elements;
  for (int64_t i = 0; i < (shard.row_end - shard.row_begin) * row_elements; ++i) {
    EXPECT_EQ(shard.parameters.values()[i], GoldenValue(shard.variable, "", begin + i));
    EXPECT_EQ(shard.slots[0].values()[i], GoldenValue(shard.variable, "m", begin + i));
    EXPECT_EQ(shard.slots[1].values()[i], GoldenValue(shard.variable, "v", begin + i));
  }
}

TEST(GoldenCheckpoint, Version1RestoresWholeInItsLayout) {
  std::vector<WantedShard> wanted;
  for (const ShardSnapshot& shard : GoldenShards()) {
    wanted.push_back({shard.shard, shard.variable, shard.variable_shape, shard.row_begin, shard.row_end});
  }
  const auto restored = Restore(kVersion1, wanted);
  ASSERT_THAT(restored, IsOk());
  ASSERT_EQ(restored->size(), 4);
  for (size_t i = 0; i < restored->size(); ++i) {
    const ShardSnapshot& shard = (*restored)[i];
    ExpectGoldenValues(shard, shard.variable == "dense_0/kernel" ? 3 : 1);
    EXPECT_EQ(shard.version, 100 + i);
    EXPECT_EQ(shard.dedupe.SerializeAsString(), GoldenShards()[i].dedupe.SerializeAsString());
  }
}

TEST(GoldenCheckpoint, Version1RestoresOntoSmallerShards) {
  const auto restored = Restore(
      kVersion1, {WantedShard{0, "dense_0/kernel", {5, 3}, 1, 2}, WantedShard{1, "dense_0/kernel", {5, 3}, 4, 5}});
  ASSERT_THAT(restored, IsOk());
  for (const ShardSnapshot& shard : *restored) ExpectGoldenValues(shard, 3);
}

TEST(GoldenCheckpoint, Version1KnowsItsLedger) {
  const auto manifest = ReadManifest(kVersion1);
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(manifest->cut(), 12);
  EXPECT_EQ(manifest->generation(), 2);
  EXPECT_EQ(manifest->ledger().epochs_complete(), 1);
  ASSERT_EQ(manifest->ledger().open_leases_size(), 1);
  EXPECT_THAT(manifest->ledger().open_leases(0).done_batches(), testing::ElementsAre(7));
}

}  // namespace
}  // namespace lagrange

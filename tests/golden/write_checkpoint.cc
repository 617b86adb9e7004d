// Writes the golden checkpoint of this program's format version: once for each version, before it is first used.
//   bazel run //tests/golden:write_checkpoint -- $PWD/tests/golden/checkpoint_v1

#include <cstdio>
#include <string>

#include "common/file_system.h"
#include "common/status.h"
#include "common/version.h"
#include "proto/manifest_file.h"
#include "ps/checkpoint_files.h"
#include "tests/golden/golden_checkpoint.h"

namespace lagrange {
namespace {

absl::Status WriteGoldenCheckpoint(const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  CheckpointManifest manifest;
  manifest.set_format_version(kCheckpointFormatVersion);
  manifest.set_build_version(kBuildVersion);
  manifest.set_job_name("golden");
  manifest.set_job_digest("0123456789abcdef");
  manifest.set_model_digest("fedcba9876543210");
  manifest.set_cut(12);
  manifest.set_generation(2);
  manifest.set_optimizer("adam");
  manifest.add_slot_names("m");
  manifest.add_slot_names("v");
  CutLedger* ledger = manifest.mutable_ledger();
  ledger->set_epochs_complete(1);
  ledger->set_leases_per_epoch(4);
  ledger->set_batch_size(32);
  ledger->set_examples_per_lease(256);
  OpenLease* open = ledger->add_open_leases();
  open->set_epoch(1);
  open->set_lease(1);
  open->add_done_batches(7);
  const std::vector<ShardSnapshot> shards = GoldenShards();
  for (const ShardSnapshot& shard : shards) {
    if (shard.row_begin != 0) continue;
    VariableEntry* variable = manifest.add_variables();
    variable->set_name(shard.variable);
    variable->mutable_shape()->Assign(shard.variable_shape.begin(), shard.variable_shape.end());
  }
  ASSIGN_OR_RETURN(*manifest.add_files(),
                   WriteShardsFile(directory, {"ps-00000-of-00002", 12, 2, 3}, {shards[0], shards[2]}));
  ASSIGN_OR_RETURN(*manifest.add_files(),
                   WriteShardsFile(directory, {"ps-00001-of-00002", 12, 2, 4}, {shards[1], shards[3]}));
  return WriteManifest(directory, manifest);
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_checkpoint DIRECTORY\n");
    return 2;
  }
  const absl::Status status = lagrange::WriteGoldenCheckpoint(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

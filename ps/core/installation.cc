#include "ps/core/installation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status.h"

namespace lagrange {

namespace {

absl::StatusOr<int32_t> IndexOf(uint64_t incarnation, const ShardMap& map) {
  for (const PsAddress& ps : map.ps()) {
    if (ps.incarnation() == incarnation) return ps.ps_index();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("shard map ", map.version(), " names no ps of incarnation ", incarnation));
}

// The snapshots by shard; InvalidArgument when one comes twice.
absl::StatusOr<std::map<uint32_t, ShardSnapshot>> ByShard(std::vector<ShardSnapshot>* snapshots) {
  std::map<uint32_t, ShardSnapshot> by_shard;
  for (ShardSnapshot& snapshot : *snapshots) {
    const uint32_t shard = snapshot.shard;
    if (!by_shard.emplace(shard, std::move(snapshot)).second) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard, " was restored twice"));
    }
  }
  return by_shard;
}

}  // namespace

absl::StatusOr<Installation> Install(const PsCommand& command, std::vector<ShardSnapshot>* snapshots) {
  const InstallShards& install = command.install_shards();
  RETURN_IF_ERROR(ValidateShardMap(install.map()));
  ASSIGN_OR_RETURN(const int32_t ps_index, IndexOf(command.incarnation(), install.map()));
  Installation made;
  made.generation = command.generation();
  made.map_version = install.map().version();
  made.cut = install.cut();
  made.leases = {install.leases_per_epoch(), install.batches_per_lease()};
  RETURN_IF_ERROR(made.leases.Validate());
  ASSIGN_OR_RETURN(made.policy, MakePolicy(install.job().consistency()));
  ASSIGN_OR_RETURN(made.optimizer, MakeOptimizer(install.job().optimizer()));
  std::map<uint32_t, ShardSnapshot> by_shard;
  if (snapshots != nullptr) {
    ASSIGN_OR_RETURN(by_shard, ByShard(snapshots));
  }
  for (const ShardPlacement& placement : install.map().shards()) {
    if (placement.ps_index() != ps_index) continue;
    Shard::Options options;
    options.placement = placement;
    options.variable = install.map().variables(placement.variable());
    options.optimizer = made.optimizer.get();
    options.batches_per_lease = made.leases.batches_per_lease;
    options.job_seed = install.job().seed();
    options.cut = made.cut;
    if (snapshots == nullptr) {
      ASSIGN_OR_RETURN(made.shards[placement.shard()], Shard::Create(options));
      continue;
    }
    const auto snapshot = by_shard.find(placement.shard());
    if (snapshot == by_shard.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard ", placement.shard(), " of ", options.variable.name(), " wasn't restored"));
    }
    ASSIGN_OR_RETURN(made.shards[placement.shard()], Shard::Restore(options, std::move(snapshot->second)));
    by_shard.erase(snapshot);
  }
  if (!by_shard.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard ", by_shard.begin()->first, " was restored but isn't this ps's"));
  }
  return made;
}

}  // namespace lagrange

// Turns an InstallShards command into shards, optimizer, policy and lease table, from initial values or snapshots.
//
// Pure but for memory; caller synchronizes.

#ifndef PS_CORE_INSTALLATION_H_
#define PS_CORE_INSTALLATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/control_plane.pb.h"
#include "ps/consistency/policy.h"
#include "ps/core/buffer.h"
#include "ps/core/dedupe.h"
#include "ps/core/shard.h"
#include "ps/optimizer/optimizer.h"

namespace lagrange {

struct Installation {
  uint64_t generation = 0;
  uint64_t map_version = 0;
  uint64_t cut = 0;
  LeaseTable leases;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<Optimizer> optimizer;
  // Those that the map gives this ps. They borrow the optimizer.
  std::map<uint32_t, std::unique_ptr<Shard>> shards;
};

// With `snapshots` null at the initial values, else from exactly the map's shards of this ps. The ps finds itself in
// the map by its incarnation. InvalidArgument names what is wrong; ResourceExhausted: no memory.
absl::StatusOr<Installation> Install(const PsCommand& command, std::vector<ShardSnapshot>* snapshots);

}  // namespace lagrange

#endif  // PS_CORE_INSTALLATION_H_

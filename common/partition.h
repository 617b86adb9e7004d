// Cuts variables into virtual shards and places the shards on ps.
//
// A dense variable is cut into contiguous ranges of whole rows of axis 0 ("div": the first shards take the remainder),
// as many as bring each nearest to shard_bytes without exceeding it, but none under 64 KiB unless the variable itself
// is; a row larger than shard_bytes is a shard of its own. Shards are numbered through variables and rows. Placement is
// greedy: shards by falling size (ties by number) go to the ps with the fewest bytes (ties by index).
//
// The cut depends on the variables and shard_bytes alone, never on the number of ps. Thread-safe: pure functions.

#ifndef COMMON_PARTITION_H_
#define COMMON_PARTITION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

// Below this a message's fixed costs outweigh its bytes (measured: 64 KiB chunks move at a quarter of 1 MiB's speed).
inline constexpr int64_t kMinShardBytes = 64 * 1024;
// Of one variable; its elements are numbered in int64 and sent in chunks, the bound keeps a typo from allocating.
inline constexpr int64_t kMaxVariableElements = int64_t{1} << 36;
inline constexpr int32_t kMaxPsCount = 1024;
// Of a job, so that one frame's header can name all shards of a ps (proto/frame.h). 390 GiB of parameters at the
// default size of shards; larger models take larger shards.
inline constexpr int64_t kMaxShardCount = 100'000;

// Elements of a shape; InvalidArgument names the variable when a dimension is under 1 or the product too large.
absl::StatusOr<int64_t> ElementCount(const VariableSpec& variable);

// The shards of all variables in order, ps_index unset. InvalidArgument: a bad shape, two variables of one name,
// shard_bytes under kMinShardBytes, or more than kMaxShardCount shards.
absl::StatusOr<std::vector<ShardPlacement>> CutIntoShards(absl::Span<const VariableSpec> variables,
                                                          int64_t shard_bytes);

// Sets ps_index. REQUIRES: 1 <= ps_count <= kMaxPsCount.
void PlaceShards(int32_t ps_count, std::vector<ShardPlacement>* shards);

// Whether a map that came over the wire or from a disk is whole: shards numbered 0, 1, ..., covering each variable's
// rows once, ps known. InvalidArgument names the shard.
absl::Status ValidateShardMap(const ShardMap& map);

}  // namespace lagrange

#endif  // COMMON_PARTITION_H_

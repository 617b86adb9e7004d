// A checkpoint's tensor files: writes a fork to one, and reads shards of any layout back out of all of them.
//
// A file ("ps-00000-of-00002.c7.g1.i4.safetensors": stem, cut, generation, incarnation of its writer, so that no later
// process can overwrite it) is in proto/safetensors.h's format. A whole variable's parameters are the tensor
// "dense_0/kernel", a slot of it "dense_0/kernel/m"; a shard that is a part of its variable adds the rows that it
// holds: "dense_0/kernel#rows=0:128", "dense_0/kernel/m#rows=0:128". Versions and dedupe state are in
// __metadata__["lagrange"], a ShardMetadata as JSON.
//
// A restore takes rows from wherever they lie, so the number of ps and the size of shards may be others than at the
// time of writing. Where a new shard is put together of several stored ranges, all must have the same version and have
// applied the same batches, as they have at an epoch's end: otherwise a batch would count as applied (or not) on rows
// where the opposite is true, so the restore is refused. A stored range that is cut up poses no such question.
//
// Thread-safe: functions without state. They block on the disk; memory is that of the shards read. Errors name the
// file: NotFound (a file or rows are missing), DataLoss (size or CRC-32C is not the manifest's; both values are named),
// FailedPrecondition (another format, model or layout), InvalidArgument, and those of common/file_system.h.

#ifndef PS_CHECKPOINT_FILES_H_
#define PS_CHECKPOINT_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/checkpoint.pb.h"
#include "proto/control_plane.pb.h"
#include "ps/core/buffer.h"

namespace lagrange {

// Whose file it is.
struct CheckpointFileIdentity {
  // "ps-00000-of-00002".
  std::string stem;
  uint64_t cut = 0;
  uint64_t generation = 0;
  uint64_t incarnation = 0;
};

std::string CheckpointFileName(const CheckpointFileIdentity& identity);

// Writes the shards (none is fine: a ps may own nothing) to a new file of the directory, whole or not at all. All
// shards must have the same slots.
absl::StatusOr<CheckpointFile> WriteShardsFile(const std::string& directory, const CheckpointFileIdentity& identity,
                                               absl::Span<const ShardSnapshot> shards);

// A shard to be put together.
struct WantedShard {
  uint32_t shard = 0;
  std::string variable;
  std::vector<int64_t> variable_shape;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

// The shards that a map gives a ps. InvalidArgument: the map isn't whole.
absl::StatusOr<std::vector<WantedShard>> ShardsOfPs(const ShardMap& map, int32_t ps_index);

// Verifies every file of the manifest, then returns the wanted shards in their order.
absl::StatusOr<std::vector<ShardSnapshot>> ReadShards(const RestoreSource& source,
                                                      absl::Span<const WantedShard> wanted);

}  // namespace lagrange

#endif  // PS_CHECKPOINT_FILES_H_

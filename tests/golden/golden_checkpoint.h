// What the golden checkpoints hold: two ps, Adam, amid an epoch, every value given by a formula.
//
// The directory checkpoint_vN is what the program of format version N wrote (write_checkpoint). It is never written
// again: each later program must restore it. Thread-safe: pure functions.

#ifndef TESTS_GOLDEN_GOLDEN_CHECKPOINT_H_
#define TESTS_GOLDEN_GOLDEN_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ps/core/buffer.h"

namespace lagrange {

// Of a variable's whole range of elements; `slot` is "", "m" or "v". All are exact in float32, and all differ.
inline float GoldenValue(const std::string& variable, const std::string& slot, int64_t element) {
  const float base = variable == "dense_0/kernel" ? 1.0f : variable == "dense_0/bias" ? -64.0f : 4096.0f;
  const float of_slot = slot.empty() ? 0.0f : slot == "m" ? 0.25f : 0.5f;
  return base + of_slot + static_cast<float>(element);
}

inline ShardSnapshot GoldenShard(uint32_t shard, const std::string& variable, const std::vector<int64_t>& shape,
                                 int64_t row_begin, int64_t row_end) {
  ShardSnapshot snapshot;
  snapshot.shard = shard;
  snapshot.variable = variable;
  snapshot.variable_shape = shape;
  snapshot.row_begin = row_begin;
  snapshot.row_end = row_end;
  snapshot.version = 100 + shard;
  const int64_t row_elements = shape.size() == 2 ? shape[1] : 1;
  for (const std::string slot : {"", "m", "v"}) {
    BufferRef buffer = BufferRef::Allocate((row_end - row_begin) * row_elements);
    for (int64_t i = 0; i < (row_end - row_begin) * row_elements; ++i) {
      buffer.MutableValues()[static_cast<size_t>(i)] = GoldenValue(variable, slot, row_begin * row_elements + i);
    }
    if (slot.empty()) {
      snapshot.parameters = buffer;
    } else {
      snapshot.slot_names.push_back(slot);
      snapshot.slots.push_back(buffer);
    }
  }
  LeaseInterval* retired = snapshot.dedupe.add_retired();
  retired->set_begin(0);
  retired->set_end(4);
  LeaseBitmap* open = snapshot.dedupe.add_open();
  open->set_lease_number(5);
  // Amid an epoch, each shard has applied other batches.
  open->add_applied_batches(static_cast<int32_t>(shard));
  open->add_applied_batches(7);
  return snapshot;
}

// Shards in their order; the first and third are on ps 0, the others on ps 1.
inline std::vector<ShardSnapshot> GoldenShards() {
  return {GoldenShard(0, "dense_0/kernel", {5, 3}, 0, 3), GoldenShard(1, "dense_0/kernel", {5, 3}, 3, 5),
          GoldenShard(2, "dense_0/bias", {3}, 0, 3), GoldenShard(3, "scale", {}, 0, 1)};
}

}  // namespace lagrange

#endif  // TESTS_GOLDEN_GOLDEN_CHECKPOINT_H_

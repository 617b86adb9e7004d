// Float arrays that are versioned by copy on write: readers hold a version, the writer moves on to another one.
//
// One mechanism serves a pull that is still being sent, a cut that is still being written, and evaluation on a pinned
// version: each holds a BufferRef, and an apply that finds the buffer held writes its result to a fresh one (it reads
// the old and writes the new, so it moves no more memory than in place). Buffers come from the writer's pool, which
// keeps the few that were freed last.

#ifndef PS_CORE_BUFFER_H_
#define PS_CORE_BUFFER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/checkpoint.pb.h"

namespace lagrange {

class Buffer;

// Counted reference; thread-safe as std::shared_ptr is. Floats begin on a 64-byte boundary.
class BufferRef {
 public:
  BufferRef() = default;
  BufferRef(const BufferRef& other);
  BufferRef(BufferRef&& other) noexcept;
  BufferRef& operator=(BufferRef other) noexcept;
  ~BufferRef();

  explicit operator bool() const { return buffer_ != nullptr; }
  absl::Span<const float> values() const;

  // True when no other reference exists; then (and only then) the holder may write. Acquires: what other holders read
  // before they let go is read.
  bool Unique() const;
  // REQUIRES: Unique().
  absl::Span<float> MutableValues();

  // A fresh buffer; contents undefined. Null when count is negative or there is no memory for it.
  static BufferRef Allocate(int64_t count);

 private:
  explicit BufferRef(Buffer* buffer) : buffer_(buffer) {}
  Buffer* buffer_ = nullptr;
};

// A writer's spare buffers, all of one size: what it replaced, until the readers let go and it is written again. Saves
// the page faults of fresh memory at every update. Caller synchronizes.
class BufferPool {
 public:
  explicit BufferPool(int64_t count) : count_(count) {}

  // A buffer that nobody else holds; contents undefined. Null when memory is out.
  BufferRef Take();
  // Keeps it for a later Take, or lets go of it when kSpares are kept.
  void Give(BufferRef buffer);

 private:
  // One that a pull is still sending, one more that a prefetched pull sends.
  static constexpr size_t kSpares = 2;

  const int64_t count_;
  std::vector<BufferRef> spares_;
};

// A shard at one instant: what a checkpoint file holds of it.
struct ShardSnapshot {
  uint32_t shard = 0;
  std::string variable;
  std::vector<int64_t> variable_shape;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  uint64_t version = 0;
  BufferRef parameters;
  // In the order of the optimizer's slot names.
  std::vector<std::string> slot_names;
  std::vector<BufferRef> slots;
  DedupeRecord dedupe;
};

}  // namespace lagrange

#endif  // PS_CORE_BUFFER_H_

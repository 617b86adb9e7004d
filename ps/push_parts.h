// The parts of one push that come on one stream: bytes in, whole shards out.
//
// For DataPlaneServer. Caller synchronizes. Owns one aligned buffer while a part is incomplete. Parts come in the order
// in which the push's first frame names them, each from its first element to its last, so there is one at a time.

#ifndef PS_PUSH_PARTS_H_
#define PS_PUSH_PARTS_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "proto/data_plane.pb.h"
#include "proto/frame.h"

namespace lagrange {

// Float arrays on 64-byte boundaries that are used again: the first touch of fresh memory costs more than the copy into
// it. Thread-safe.
class FloatBufferPool {
 public:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Buffer {
    std::unique_ptr<float, Free> memory;
    int64_t capacity = 0;
  };

  // Contents undefined. ResourceExhausted: the memory isn't there.
  absl::StatusOr<Buffer> Take(int64_t count);
  void Return(Buffer buffer);

 private:
  absl::Mutex mutex_;
  std::vector<Buffer> idle_ ABSL_GUARDED_BY(mutex_);
};

class PushParts {
 public:
  using ApplyPart = absl::FunctionRef<absl::Status(uint32_t shard, uint64_t version, absl::Span<const float> gradient)>;
  using ElementCountOf = absl::FunctionRef<absl::StatusOr<int64_t>(uint32_t shard)>;

  // `first` names the shards and the number of frames.
  PushParts(const FrameHeader& first, FloatBufferPool* pool);
  ~PushParts();
  PushParts(const PushParts&) = delete;
  PushParts& operator=(const PushParts&) = delete;

  // Takes a frame's segments and applies what becomes whole. The first error ends it: what is the matter with the push,
  // or what `apply` said; later frames are only counted.
  absl::Status Take(FrameReader* frame, ElementCountOf element_count_of, ApplyPart apply);
  // Later frames are only counted.
  void Drop() { dropped_ = true; }
  bool last_frame_taken() const { return frames_left_ == 0; }

 private:
  absl::Status TakeSegments(FrameReader* frame, ElementCountOf element_count_of, ApplyPart apply);
  absl::Status Begin(const Segment& segment, ElementCountOf element_count_of);

  FloatBufferPool* const pool_;
  const std::vector<uint32_t> shards_;
  uint32_t frames_left_;
  bool dropped_ = false;
  // Of shards_: the part that is being received, or the next one.
  size_t part_ = 0;
  int64_t part_count_ = 0;
  int64_t received_count_ = 0;
  FloatBufferPool::Buffer buffer_;
};

}  // namespace lagrange

#endif  // PS_PUSH_PARTS_H_

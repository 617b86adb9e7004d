#include "ps/push_parts.h"

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lagrange {
namespace {

// One for each stream that receives at once is enough; streams share them.
constexpr size_t kMaxIdleBuffers = 16;
constexpr size_t kAlignmentBytes = 64;
// Smaller shards share a buffer of this size.
constexpr int64_t kMinBufferCount = 16 << 10;

}  // namespace

absl::StatusOr<FloatBufferPool::Buffer> FloatBufferPool::Take(int64_t count) {
  {
    absl::MutexLock lock(&mutex_);
    // The one used last is the likeliest to be in cache.
    for (size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].capacity < count) continue;
      Buffer buffer = std::move(idle_[i]);
      idle_.erase(idle_.begin() + static_cast<int64_t>(i));
      return buffer;
    }
  }
  Buffer buffer;
  buffer.capacity = std::max(count, kMinBufferCount);
  const size_t bytes =
      (static_cast<size_t>(buffer.capacity) * sizeof(float) + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  buffer.memory.reset(static_cast<float*>(std::aligned_alloc(kAlignmentBytes, bytes)));
  if (buffer.memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a part of ", bytes, " bytes"));
  }
  return buffer;
}

void FloatBufferPool::Return(Buffer buffer) {
  if (buffer.memory == nullptr) return;
  absl::MutexLock lock(&mutex_);
  if (idle_.size() >= kMaxIdleBuffers) idle_.erase(idle_.begin());
  idle_.push_back(std::move(buffer));
}

PushParts::PushParts(const FrameHeader& first, FloatBufferPool* pool)
    : pool_(pool), shards_(first.shards().begin(), first.shards().end()), frames_left_(first.frame_count()) {}

PushParts::~PushParts() { pool_->Return(std::move(buffer_)); }

absl::Status PushParts::Take(FrameReader* frame, ElementCountOf element_count_of, ApplyPart apply) {
  --frames_left_;
  if (dropped_) return absl::OkStatus();
  absl::Status status = TakeSegments(frame, element_count_of, apply);
  if (status.ok() && frames_left_ == 0 && part_ < shards_.size()) {
    status = absl::InvalidArgumentError(absl::StrCat("the push ends with shard ", shards_[part_],
                                                     " incomplete: ", received_count_, " of its elements came"));
  }
  if (!status.ok()) dropped_ = true;
  return status;
}

absl::Status PushParts::TakeSegments(FrameReader* frame, ElementCountOf element_count_of, ApplyPart apply) {
  for (const Segment& segment : frame->header().segments()) {
    if (received_count_ == 0) RETURN_IF_ERROR(Begin(segment, element_count_of));
    if (segment.shard() != shards_[part_] || segment.offset() != received_count_ ||
        segment.count() > part_count_ - received_count_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "segment of shard ", segment.shard(), " has elements ", segment.offset(), " and ", segment.count(),
          " following; expected shard ", shards_[part_], " from element ", received_count_, " of ", part_count_));
    }
    frame->Read(buffer_.memory.get() + received_count_, static_cast<size_t>(segment.count()) * sizeof(float));
    received_count_ += segment.count();
    if (received_count_ < part_count_) continue;
    ++part_;
    received_count_ = 0;
    RETURN_IF_ERROR(apply(segment.shard(), segment.version(),
                          absl::MakeConstSpan(buffer_.memory.get(), static_cast<size_t>(part_count_))));
  }
  return absl::OkStatus();
}

absl::Status PushParts::Begin(const Segment& segment, ElementCountOf element_count_of) {
  if (part_ == shards_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("segment of shard ", segment.shard(), " follows the last of the ",
                                                   shards_.size(), " shards that the push names"));
  }
  absl::StatusOr<int64_t> count = element_count_of(shards_[part_]);
  RETURN_IF_ERROR(count.status());
  part_count_ = *count;
  if (buffer_.capacity < part_count_) {
    pool_->Return(std::exchange(buffer_, FloatBufferPool::Buffer()));
    ASSIGN_OR_RETURN(buffer_, pool_->Take(part_count_));
  }
  return absl::OkStatus();
}

}  // namespace lagrange

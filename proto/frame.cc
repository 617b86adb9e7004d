#include "proto/frame.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lagrange {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames hold the host's floats as they are");

void PutU32(uint32_t value, char* destination) { std::memcpy(destination, &value, sizeof(value)); }

uint32_t GetU32(const char* source) {
  uint32_t value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

// memcpy in short pieces from the end. Of 4 KiB or more glibc's own is one `rep movsb`, and on AMD's Zen that falls
// from 48 to 3 GB/s when the destination lies up to 32 bytes behind the source in its page, as arrays of ours and
// slices of gRPC's do. A short piece is loaded whole before it is stored, and going down no load follows a store to its
// page offset.
void CopyBytes(char* destination, const char* source, size_t bytes) {
  constexpr size_t kPieceBytes = 256;
  while (bytes >= kPieceBytes) {
    bytes -= kPieceBytes;
    std::memcpy(destination + bytes, source + bytes, kPieceBytes);
  }
  std::memcpy(destination, source, bytes);
}

absl::Status CheckHeader(const FrameHeader& header, int64_t payload_bytes) {
  if (header.segments_size() > kMaxSegmentsPerFrame) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame has ", header.segments_size(), " segments; at most ", kMaxSegmentsPerFrame));
  }
  if (header.shards_size() > kMaxShardsPerFrame) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame names ", header.shards_size(), " shards; at most ", kMaxShardsPerFrame));
  }
  // Each count is bounded before it is added, so the sum stays far from overflow.
  constexpr int64_t kMaxCount = kMaxFramePayloadBytes / static_cast<int64_t>(sizeof(float));
  int64_t claimed_bytes = 0;
  for (const Segment& segment : header.segments()) {
    if (segment.count() < 1 || segment.count() > kMaxCount || segment.offset() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("frame's segment of shard ", segment.shard(), " has offset ",
                                                     segment.offset(), " and count ", segment.count()));
    }
    claimed_bytes += segment.count() * static_cast<int64_t>(sizeof(float));
  }
  if (claimed_bytes != payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame's segments claim ", claimed_bytes, " bytes; it carries ", payload_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

void FrameBuilder::AddCopied(const void* data, size_t bytes) {
  copied_.append(static_cast<const char*>(data), bytes);
  payload_bytes_ += static_cast<int64_t>(bytes);
}

void FrameBuilder::AddSlice(grpc::Slice slice) {
  FlushCopied();
  payload_bytes_ += static_cast<int64_t>(slice.size());
  slices_.push_back(std::move(slice));
}

void FrameBuilder::FlushCopied() {
  if (copied_.empty()) return;
  slices_.emplace_back(copied_.data(), copied_.size());
  copied_.clear();
}

grpc::ByteBuffer FrameBuilder::Finish() {
  const size_t header_bytes = header.ByteSizeLong();
  CHECK(header_bytes <= static_cast<size_t>(kMaxFrameHeaderBytes));
  // A short payload travels in the header's slice: one buffer, one iovec.
  const bool joins = slices_.empty();
  const size_t joined_bytes = joins ? copied_.size() : 0;
  grpc::Slice first(kFramePrefixBytes + header_bytes + joined_bytes);
  // A slice of this constructor is fresh memory that nobody else has yet.
  char* bytes = reinterpret_cast<char*>(const_cast<uint8_t*>(first.begin()));
  PutU32(static_cast<uint32_t>(header_bytes), bytes);
  PutU32(kFrameMagic, bytes + 4);
  header.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(bytes) + kFramePrefixBytes);
  if (joins) {
    std::memcpy(bytes + kFramePrefixBytes + header_bytes, copied_.data(), joined_bytes);
    return grpc::ByteBuffer(&first, 1);
  }
  FlushCopied();
  slices_.insert(slices_.begin(), std::move(first));
  return grpc::ByteBuffer(slices_.data(), slices_.size());
}

FrameCutter::FrameCutter(int64_t chunk_bytes)
    : chunk_elements_(std::clamp<int64_t>(chunk_bytes, 4096, kMaxFramePayloadBytes) / sizeof(float)) {}

void FrameCutter::Add(uint32_t shard, uint64_t version, absl::Span<const float> values,
                      absl::FunctionRef<grpc::Slice(const float* data, size_t bytes)> reference) {
  int64_t offset = 0;
  const int64_t count = static_cast<int64_t>(values.size());
  while (offset < count) {
    int64_t room = 0;
    if (!frames_.empty() && frames_.back().header.segments_size() < kMaxSegmentsPerFrame) {
      room = chunk_elements_ - frames_.back().payload_bytes() / static_cast<int64_t>(sizeof(float));
    }
    if (room <= 0) {
      frames_.emplace_back();
      room = chunk_elements_;
    }
    FrameBuilder& frame = frames_.back();
    const int64_t taken = std::min(room, count - offset);
    Segment* segment = frame.header.add_segments();
    segment->set_shard(shard);
    segment->set_offset(offset);
    segment->set_count(taken);
    segment->set_version(version);
    const float* data = values.data() + offset;
    const size_t bytes = static_cast<size_t>(taken) * sizeof(float);
    if (bytes < kCopyBelowBytes) {
      frame.AddCopied(data, bytes);
    } else {
      frame.AddSlice(reference(data, bytes));
    }
    offset += taken;
  }
}

std::vector<FrameBuilder> FrameCutter::Take() {
  if (frames_.empty()) frames_.emplace_back();
  return std::move(frames_);
}

absl::StatusOr<FrameReader> FrameReader::Parse(const grpc::ByteBuffer& frame) {
  FrameReader reader;
  const int64_t frame_bytes = static_cast<int64_t>(frame.Length());
  if (frame_bytes > kFramePrefixBytes + kMaxFrameHeaderBytes + kMaxFramePayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame of ", frame_bytes, " bytes is too long"));
  }
  if (!frame.Dump(&reader.slices_).ok()) return absl::InvalidArgumentError("frame cannot be read");
  RETURN_IF_ERROR(reader.ParseHeader(frame_bytes));
  return reader;
}

absl::Status FrameReader::ParseHeader(int64_t frame_bytes) {
  if (frame_bytes < kFramePrefixBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", frame_bytes, " bytes; its prefix alone has ", kFramePrefixBytes));
  }
  char prefix[kFramePrefixBytes];
  Read(prefix, kFramePrefixBytes);
  const int64_t header_bytes = GetU32(prefix);
  if (GetU32(prefix + 4) != kFrameMagic) return absl::InvalidArgumentError("frame does not begin with its magic");
  if (header_bytes > std::min(kMaxFrameHeaderBytes, frame_bytes - kFramePrefixBytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of ", frame_bytes, " bytes claims a header of ", header_bytes));
  }
  bool parsed;
  if (slice_ < slices_.size() && slices_[slice_].size() - offset_ >= static_cast<size_t>(header_bytes)) {
    parsed = header_.ParseFromArray(slices_[slice_].begin() + offset_, static_cast<int>(header_bytes));
    Skip(static_cast<size_t>(header_bytes));
  } else {
    std::string gathered(static_cast<size_t>(header_bytes), '\0');
    Read(&gathered[0], gathered.size());
    parsed = header_.ParseFromString(gathered);
  }
  if (!parsed) return absl::InvalidArgumentError("frame's header is not a FrameHeader");
  return CheckHeader(header_, frame_bytes - kFramePrefixBytes - header_bytes);
}

void FrameReader::Read(void* destination, size_t bytes) {
  char* out = static_cast<char*>(destination);
  while (bytes > 0) {
    CHECK(slice_ < slices_.size());
    const grpc::Slice& slice = slices_[slice_];
    const size_t taken = std::min(bytes, slice.size() - offset_);
    CopyBytes(out, reinterpret_cast<const char*>(slice.begin()) + offset_, taken);
    out += taken;
    bytes -= taken;
    offset_ += taken;
    if (offset_ == slice.size()) {
      ++slice_;
      offset_ = 0;
    }
  }
}

void FrameReader::Skip(size_t bytes) {
  while (bytes > 0) {
    CHECK(slice_ < slices_.size());
    const size_t taken = std::min(bytes, slices_[slice_].size() - offset_);
    bytes -= taken;
    offset_ += taken;
    if (offset_ == slices_[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
  }
}

}  // namespace lagrange

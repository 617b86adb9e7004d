// Frames of the data path: how headers and raw tensor bytes become gRPC byte buffers, and come out of them again.
//
// Layout, little-endian: u32 header length, u32 kFrameMagic, FrameHeader, then the float32 bytes of header.segments in
// their order. Nothing is copied on the way out but short runs; what comes in is copied once, to where the caller says.
// Caller synchronizes. Nothing here trusts a peer: a frame that parses has bounded counts, and exactly the bytes that
// its segments claim.

#ifndef PROTO_FRAME_H_
#define PROTO_FRAME_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

// The streams of the data path: a generic bidirectional gRPC method whose messages are frames.
inline constexpr char kDataPlaneMethod[] = "/lagrange.DataPlane/Stream";
// Metadata key: streams that name the same session are one peer's, and end together.
inline constexpr char kSessionMetadataKey[] = "lagrange-session";

// "LRG1": the first bytes of a stranger's message say so at once.
inline constexpr uint32_t kFrameMagic = 0x3147524c;
inline constexpr int64_t kFramePrefixBytes = 8;
// Holds the shard list of kMaxShardCount shards (common/partition.h); more is a broken or hostile peer.
inline constexpr int64_t kMaxFrameHeaderBytes = int64_t{1} << 20;
// Chunks are 1-2 MiB; below gRPC's message limit (proto/channel_arguments.h).
inline constexpr int64_t kMaxFramePayloadBytes = int64_t{16} << 20;
inline constexpr int kMaxSegmentsPerFrame = 8192;
inline constexpr int kMaxShardsPerFrame = 1 << 17;
// A slice of its own costs more than copying so few bytes.
inline constexpr size_t kCopyBelowBytes = 8192;

// A slice over memory that stays alive, and unchanged, for as long as `hold` exists; gRPC destroys it on a thread of
// its own when it has no more use for the bytes.
template <typename Hold>
grpc::Slice HoldingSlice(const void* data, size_t bytes, Hold hold) {
  return grpc::Slice(
      const_cast<void*>(data), bytes, [](void* held) { delete static_cast<Hold*>(held); }, new Hold(std::move(hold)));
}

// One frame in the making.
class FrameBuilder {
 public:
  FrameHeader header;

  int64_t payload_bytes() const { return payload_bytes_; }
  void AddCopied(const void* data, size_t bytes);
  void AddSlice(grpc::Slice slice);
  // The frame; the builder is used up.
  grpc::ByteBuffer Finish();

 private:
  void FlushCopied();

  int64_t payload_bytes_ = 0;
  std::vector<grpc::Slice> slices_;
  std::string copied_;
};

// Cuts runs of floats into frames of about chunk_bytes. Runs are split anywhere, short ones share a frame.
class FrameCutter {
 public:
  explicit FrameCutter(int64_t chunk_bytes);

  // Appends a shard's elements, from its first. `reference` makes a slice over the bytes given; it is called for what
  // isn't copied.
  void Add(uint32_t shard, uint64_t version, absl::Span<const float> values,
           absl::FunctionRef<grpc::Slice(const float* data, size_t bytes)> reference);
  // The frames so far, at least one; headers have segments alone. The cutter is used up.
  std::vector<FrameBuilder> Take();

 private:
  int64_t chunk_elements_;
  std::vector<FrameBuilder> frames_;
};

// One frame that came in.
class FrameReader {
 public:
  // InvalidArgument says what is wrong with the frame.
  static absl::StatusOr<FrameReader> Parse(const grpc::ByteBuffer& frame);

  const FrameHeader& header() const { return header_; }
  // The next bytes of the payload. REQUIRES: together not more than the segments have.
  void Read(void* destination, size_t bytes);
  void Skip(size_t bytes);

 private:
  FrameReader() = default;
  absl::Status ParseHeader(int64_t frame_bytes);

  FrameHeader header_;
  std::vector<grpc::Slice> slices_;
  size_t slice_ = 0;
  // In slices_[slice_].
  size_t offset_ = 0;
};

}  // namespace lagrange

#endif  // PROTO_FRAME_H_

#include "proto/frame.h"

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/partition.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

std::vector<float> Counting(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

grpc::Slice Unowned(const float* data, size_t bytes) { return HoldingSlice(data, bytes, 0); }

std::string Bytes(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  EXPECT_TRUE(buffer.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

// In slices of `slice_bytes`, so that headers and floats straddle them.
grpc::ByteBuffer Sliced(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t begin = 0; begin < bytes.size(); begin += slice_bytes)
    slices.emplace_back(bytes.substr(begin, slice_bytes));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string RawFrame(uint32_t header_bytes, uint32_t magic, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(&bytes[0], &header_bytes, 4);
  std::memcpy(&bytes[4], &magic, 4);
  return bytes + rest;
}

grpc::ByteBuffer FrameOf(const FrameHeader& header, const std::string& payload) {
  const std::string encoded = header.SerializeAsString();
  return Sliced(RawFrame(static_cast<uint32_t>(encoded.size()), kFrameMagic, encoded + payload), 1 << 20);
}

Segment* AddSegment(int64_t offset, int64_t count, FrameHeader* header) {
  Segment* segment = header->add_segments();
  segment->set_shard(7);
  segment->set_offset(offset);
  segment->set_count(count);
  return segment;
}

TEST(Frame, LayoutIsLengthMagicHeaderBytes) {
  FrameBuilder builder;
  builder.header.set_kind(PULL);
  builder.header.set_request_id(5);
  const float value = 1.0f;
  builder.AddCopied(&value, sizeof(value));
  // kind = 1 and request_id = 5 in protobuf's encoding, then 1.0f.
  EXPECT_EQ(Bytes(builder.Finish()), std::string("\x04\0\0\0LRG1\x08\x01\x10\x05\0\0\x80\x3f", 16));
}

TEST(Frame, FloatsThatStraddleSlicesComeOutBitIdentical) {
  const std::vector<float> values = Counting(5000, 0.1f);
  FrameCutter cutter(1 << 20);
  cutter.Add(7, 3, values, Unowned);
  std::vector<FrameBuilder> frames = cutter.Take();
  ASSERT_EQ(frames.size(), 1u);
  const std::string bytes = Bytes(frames[0].Finish());
  for (size_t slice_bytes : {1, 3, 7, 4096, 1 << 20}) {
    auto reader = FrameReader::Parse(Sliced(bytes, slice_bytes));
    ASSERT_THAT(reader, IsOk());
    std::vector<float> out(values.size());
    reader->Skip(8);
    reader->Read(out.data() + 2, (out.size() - 2) * sizeof(float));
    EXPECT_EQ(std::memcmp(out.data() + 2, values.data() + 2, (out.size() - 2) * sizeof(float)), 0) << slice_bytes;
  }
}

TEST(FrameCutter, SplitsALongRunAndJoinsShortOnes) {
  const std::vector<float> values = Counting(5000, 0);
  FrameCutter cutter(4096);
  cutter.Add(1, 11, absl::MakeSpan(values).first(1500), Unowned);
  cutter.Add(2, 12, absl::MakeSpan(values).first(10), Unowned);
  std::vector<FrameBuilder> frames = cutter.Take();
  ASSERT_EQ(frames.size(), 2u);
  ASSERT_EQ(frames[0].header.segments_size(), 1);
  EXPECT_EQ(frames[0].header.segments(0).count(), 1024);
  ASSERT_EQ(frames[1].header.segments_size(), 2);
  EXPECT_EQ(frames[1].header.segments(0).offset(), 1024);
  EXPECT_EQ(frames[1].header.segments(0).count(), 476);
  EXPECT_EQ(frames[1].header.segments(1).shard(), 2u);
  EXPECT_EQ(frames[1].header.segments(1).version(), 12u);
  EXPECT_EQ(frames[1].payload_bytes(), 486 * 4);
}

TEST(FrameCutter, NothingIsOneEmptyFrame) { EXPECT_EQ(FrameCutter(1 << 20).Take().size(), 1u); }

TEST(Frame, HoldLastsAsLongAsTheSlices) {
  const std::vector<float> values = Counting(10000, 0);
  auto hold = std::make_shared<int>(0);
  FrameBuilder builder;
  builder.AddSlice(HoldingSlice(values.data(), 40000, hold));
  {
    grpc::ByteBuffer frame = builder.Finish();
    builder = FrameBuilder();
    EXPECT_EQ(hold.use_count(), 2);
  }
  EXPECT_EQ(hold.use_count(), 1);
}

TEST(Frame, AReplyNamesEveryShardOfTheLargestJob) {
  FrameBuilder frame;
  for (int64_t i = 0; i < kMaxShardCount; ++i) {
    ShardResult* result = frame.header.mutable_reply()->add_results();
    result->set_shard(static_cast<uint32_t>(kMaxShardCount - 1));
    result->set_outcome(LATE);
  }
  EXPECT_THAT(FrameReader::Parse(frame.Finish()), IsOk());
}

TEST(Frame, APushBeginsWithEveryShardOfTheLargestJobAndAllSegments) {
  FrameBuilder frame;
  for (int64_t i = 0; i < kMaxShardCount; ++i) frame.header.add_shards(static_cast<uint32_t>(kMaxShardCount - 1));
  const float value = 0;
  for (int i = 0; i < kMaxSegmentsPerFrame; ++i) {
    Segment* segment = frame.header.add_segments();
    segment->set_shard(static_cast<uint32_t>(kMaxShardCount - 1));
    segment->set_offset(int64_t{1} << 36);
    segment->set_count(1);
    segment->set_version(~uint64_t{0});
    frame.AddCopied(&value, sizeof(value));
  }
  EXPECT_THAT(FrameReader::Parse(frame.Finish()), IsOk());
}

TEST(FrameReader, RefusesEveryCutOfAFrame) {
  FrameHeader header;
  header.set_kind(PUSH);
  AddSegment(0, 2, &header);
  const std::string bytes = Bytes(FrameOf(header, std::string(8, 'x')));
  ASSERT_THAT(FrameReader::Parse(Sliced(bytes, 64)), IsOk());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THAT(FrameReader::Parse(Sliced(bytes.substr(0, length), 64)), StatusIs(absl::StatusCode::kInvalidArgument))
        << length;
  }
}

TEST(FrameReader, RefusesBytesThatNoSegmentClaims) {
  FrameHeader header;
  AddSegment(0, 2, &header);
  EXPECT_THAT(FrameReader::Parse(FrameOf(header, std::string(12, 'x'))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("claim 8 bytes; it carries 12")));
}

TEST(FrameReader, RefusesAHugeHeaderLength) {
  EXPECT_THAT(FrameReader::Parse(Sliced(RawFrame(0xffffffffu, kFrameMagic, "x"), 64)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("claims a header of 4294967295")));
}

TEST(FrameReader, RefusesAnotherMagic) {
  EXPECT_THAT(FrameReader::Parse(Sliced(RawFrame(0, 0x54544850, ""), 64)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("magic")));
}

TEST(FrameReader, RefusesAHeaderThatIsNotOne) {
  EXPECT_THAT(FrameReader::Parse(Sliced(RawFrame(3, kFrameMagic, "\xff\xff\xff"), 64)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a FrameHeader")));
}

TEST(FrameReader, RefusesCountsWhoseSumWraps) {
  // 4 * (2^62 + 2^62) and 4 * 2^62 are 0 modulo 2^64; -1 twice and 2 would sum to 0.
  for (int64_t count : {int64_t{1} << 62, int64_t{-1}, int64_t{0}, INT64_MAX, INT64_MIN}) {
    FrameHeader header;
    AddSegment(0, count, &header);
    AddSegment(0, count, &header);
    EXPECT_THAT(FrameReader::Parse(FrameOf(header, "")), StatusIs(absl::StatusCode::kInvalidArgument)) << count;
  }
}

TEST(FrameReader, RefusesANegativeOffset) {
  FrameHeader header;
  AddSegment(-1, 1, &header);
  EXPECT_THAT(FrameReader::Parse(FrameOf(header, "abcd")), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(FrameReader, RefusesTooManySegments) {
  FrameHeader header;
  for (int i = 0; i <= kMaxSegmentsPerFrame; ++i) AddSegment(0, 1, &header);
  EXPECT_THAT(FrameReader::Parse(FrameOf(header, std::string(4 * (kMaxSegmentsPerFrame + 1), 'x'))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8193 segments")));
}

}  // namespace
}  // namespace lagrange

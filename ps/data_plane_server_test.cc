#include "ps/data_plane_server.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/channel_arguments.h"
#include "proto/frame.h"
#include "ps/array_engine_testing.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A stream of hand-made frames; each call blocks.
class RawStream {
 public:
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& session,
            const std::string& method = kDataPlaneMethod)
      : stub_(channel) {
    if (!session.empty()) context_.AddMetadata(kSessionMetadataKey, session);
    stream_ = stub_.PrepareCall(&context_, method, &queue_);
    stream_->StartCall(this);
    Next();
    // The server sends it once the stream is in its session, or refused.
    stream_->ReadInitialMetadata(this);
    Next();
  }
  ~RawStream() {
    context_.TryCancel();
    if (!finished_) Finish();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const grpc::ByteBuffer& frame) {
    stream_->Write(frame, this);
    return Next();
  }
  bool Write(FrameBuilder frame) { return Write(frame.Finish()); }
  std::optional<FrameReader> Read() {
    grpc::ByteBuffer buffer;
    stream_->Read(&buffer, this);
    if (!Next()) return std::nullopt;
    auto frame = FrameReader::Parse(buffer);
    EXPECT_TRUE(frame.ok()) << frame.status();
    return *std::move(frame);
  }
  ReplyHeader ReadReply() {
    std::optional<FrameReader> frame = Read();
    return frame.has_value() ? frame->header().reply() : ReplyHeader();
  }
  void WritesDone() {
    stream_->WritesDone(this);
    Next();
  }
  grpc::Status Finish() {
    finished_ = true;
    grpc::Status status;
    stream_->Finish(&status, this);
    Next();
    return status;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  bool Next() {
    void* tag;
    bool ok = false;
    queue_.Next(&tag, &ok);
    return ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool finished_ = false;
};

class DataPlaneServerTest : public ::testing::Test {
 protected:
  // Shards 0, 1 and 2.
  static constexpr int64_t kCounts[] = {3, 50'000, 7};

  DataPlaneServerTest() : engine_({kCounts[0], kCounts[1], kCounts[2]}) {
    DataPlaneServerOptions options;
    options.chunk_bytes = 64 << 10;
    options.on_bad_push = [this](const RequestHeader&, const std::string& message) { bad_push_ = message; };
    data_plane_ = std::make_unique<DataPlaneServer>(&engine_, options);
    grpc::ServerBuilder builder;
    ApplyServerArguments(&builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(data_plane_->service());
    server_ = builder.BuildAndStart();
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials(),
                                         ClientChannelArguments());
  }
  ~DataPlaneServerTest() override {
    data_plane_->CloseStreams();
    server_->Shutdown();
    server_->Wait();
  }

  static FrameBuilder Pull(uint64_t request_id) {
    FrameBuilder frame;
    frame.header.set_kind(PULL);
    frame.header.set_request_id(request_id);
    frame.header.set_attempt(request_id);
    return frame;
  }
  static FrameBuilder Push(uint64_t request_id, const std::vector<uint32_t>& shards, uint32_t frame_count = 1,
                           uint32_t stream_count = 1) {
    FrameBuilder frame;
    frame.header.set_kind(PUSH);
    frame.header.set_request_id(request_id);
    frame.header.set_attempt(request_id);
    frame.header.mutable_request()->mutable_key()->set_batch(static_cast<int32_t>(request_id));
    frame.header.mutable_shards()->Assign(shards.begin(), shards.end());
    frame.header.set_frame_count(frame_count);
    frame.header.set_stream_count(stream_count);
    return frame;
  }
  static void AddSegment(uint32_t shard, int64_t offset, const std::vector<float>& values, FrameBuilder* frame) {
    Segment* segment = frame->header.add_segments();
    segment->set_shard(shard);
    segment->set_offset(offset);
    segment->set_count(static_cast<int64_t>(values.size()));
    frame->AddCopied(values.data(), values.size() * sizeof(float));
  }
  // The session still does its work.
  static void ExpectAlive(RawStream* stream) {
    FrameBuilder push = Push(1000, {0});
    AddSegment(0, 0, {4, 5, 6}, &push);
    ASSERT_TRUE(stream->Write(std::move(push)));
    EXPECT_EQ(stream->ReadReply().code(), OK);
  }
  void ExpectServerAlive() {
    RawStream stream(channel_, "another");
    ExpectAlive(&stream);
  }
  // That this frame ends the stream, and nothing else.
  void ExpectBreaks(const grpc::ByteBuffer& frame, const std::string& message) {
    RawStream stream(channel_, "");
    stream.Write(frame);
    EXPECT_FALSE(stream.Read().has_value());
    const grpc::Status status = stream.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(message));
    EXPECT_EQ(engine_.applied_parts(), 0);
    ExpectServerAlive();
  }
  void ExpectRefused(FrameBuilder push, ReplyCode code, const std::string& message) {
    RawStream stream(channel_, "");
    ASSERT_TRUE(stream.Write(std::move(push)));
    const ReplyHeader reply = stream.ReadReply();
    EXPECT_EQ(reply.code(), code);
    EXPECT_THAT(reply.message(), HasSubstr(message));
    EXPECT_EQ(engine_.applied_parts(), 0);
    EXPECT_EQ(engine_.ended_pushes(), 0);
    ExpectAlive(&stream);
  }

  ArrayEngine engine_;
  std::string bad_push_;
  std::unique_ptr<DataPlaneServer> data_plane_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

grpc::ByteBuffer Raw(const std::string& bytes) {
  grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

TEST_F(DataPlaneServerTest, PushOfOneFrameIsAppliedAndAnswered) {
  RawStream stream(channel_, "");
  FrameBuilder push = Push(5, {2, 0});
  AddSegment(2, 0, {1, 2, 3, 4, 5, 6, 7}, &push);
  AddSegment(0, 0, {-1, -2, -3}, &push);
  ASSERT_TRUE(stream.Write(std::move(push)));
  std::optional<FrameReader> reply = stream.Read();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->header().kind(), PUSH_REPLY);
  EXPECT_EQ(reply->header().request_id(), 5u);
  EXPECT_EQ(reply->header().reply().results_size(), 2);
  EXPECT_THAT(engine_.ValuesOf(0), ElementsAre(-1, -2, -3));
  EXPECT_THAT(engine_.ValuesOf(2), ElementsAre(1, 2, 3, 4, 5, 6, 7));
}

TEST_F(DataPlaneServerTest, PushIsWholeWhenAllItsStreamsAre) {
  RawStream first(channel_, "peer");
  RawStream second(channel_, "peer");
  FrameBuilder push = Push(5, {0}, 1, 2);
  AddSegment(0, 0, {1, 2, 3}, &push);
  ASSERT_TRUE(first.Write(std::move(push)));
  push = Push(5, {2}, 2, 2);
  AddSegment(2, 0, {1, 2}, &push);
  ASSERT_TRUE(second.Write(std::move(push)));
  push = FrameBuilder();
  push.header.set_kind(PUSH);
  push.header.set_attempt(5);
  AddSegment(2, 2, {3, 4, 5, 6, 7}, &push);
  ASSERT_TRUE(second.Write(std::move(push)));
  engine_.WaitForEndedPushes(1);
  EXPECT_EQ(engine_.ended_pushes(), 1);
  EXPECT_THAT(engine_.ValuesOf(2), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(engine_.applied_parts(), 2);
}

TEST_F(DataPlaneServerTest, PullIsSpreadOverTheSessionsStreams) {
  RawStream first(channel_, "peer");
  RawStream second(channel_, "peer");
  RawStream other(channel_, "another");
  ASSERT_TRUE(first.Write(Pull(1)));
  int64_t bytes = 0;
  // 200,040 bytes in frames of 65,536: four, two for each.
  for (RawStream* stream : {&first, &second, &first, &second}) {
    std::optional<FrameReader> frame = stream->Read();
    ASSERT_TRUE(frame.has_value());
    for (const Segment& segment : frame->header().segments()) bytes += segment.count() * 4;
    if (frame->header().has_reply()) {
      EXPECT_EQ(frame->header().reply().total_bytes(), 200'040);
    }
  }
  EXPECT_EQ(bytes, 200'040);
}

TEST_F(DataPlaneServerTest, HeldPullIsAnsweredThroughDeliver) {
  RawStream stream(channel_, "");
  engine_.HoldPulls();
  ASSERT_TRUE(stream.Write(Pull(8)));
  engine_.WaitForHeldPulls(1);
  data_plane_->Deliver(engine_.ReleasePulls());
  EXPECT_EQ(stream.ReadReply().cut(), 9u);
}

TEST_F(DataPlaneServerTest, RepeatedPullIsAnsweredOnceForItsLatestAttempt) {
  RawStream stream(channel_, "");
  engine_.HoldPulls();
  for (uint64_t attempt : {21, 22}) {
    FrameBuilder pull = Pull(8);
    pull.header.set_attempt(attempt);
    ASSERT_TRUE(stream.Write(std::move(pull)));
  }
  // Behind both, so that they have been taken.
  FrameBuilder push = Push(5, {0});
  AddSegment(0, 0, {1, 2, 3}, &push);
  ASSERT_TRUE(stream.Write(std::move(push)));
  EXPECT_EQ(stream.ReadReply().code(), OK);
  data_plane_->Deliver(engine_.ReleasePulls());
  data_plane_->Deliver(engine_.ReleasePulls());
  for (int frames = 0; frames < 4; ++frames) EXPECT_EQ(stream.Read()->header().attempt(), 22u);
  ExpectAlive(&stream);
}

TEST_F(DataPlaneServerTest, EndOfAStreamForgetsItsRequestsAndEndsItsSession) {
  RawStream first(channel_, "peer");
  RawStream second(channel_, "peer");
  engine_.HoldPulls();
  ASSERT_TRUE(first.Write(Pull(8)));
  engine_.WaitForHeldPulls(1);
  second.Cancel();
  engine_.WaitForForgotten(1);
  EXPECT_FALSE(first.Read().has_value());
  EXPECT_FALSE(first.Finish().ok());
  ExpectServerAlive();
}

TEST_F(DataPlaneServerTest, HalfClosedStreamEndsWell) {
  RawStream stream(channel_, "");
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST_F(DataPlaneServerTest, PeerThatReadsNothingHoldsUpNobody) {
  RawStream lazy(channel_, "lazy");
  // Far more than windows and sockets hold.
  for (uint64_t id = 1; id <= 200; ++id) ASSERT_TRUE(lazy.Write(Pull(id)));
  ExpectServerAlive();
}

TEST_F(DataPlaneServerTest, PeerThatReadsNothingAndAsksOnIsCutOff) {
  RawStream lazy(channel_, "lazy");
  uint64_t id = 0;
  while (id < 100'000 && lazy.Write(Pull(++id))) {
  }
  EXPECT_LT(id, 100'000u);
  ExpectServerAlive();
}

TEST_F(DataPlaneServerTest, AnotherMethodIsUnimplemented) {
  RawStream stream(channel_, "", "/lagrange.DataPlane/Other");
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(DataPlaneServerTest, ClosedServerRefusesStreams) {
  data_plane_->CloseStreams();
  RawStream stream(channel_, "");
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// ---- frames that break the protocol --------------------------------------------------------------------------------

TEST_F(DataPlaneServerTest, GarbageEndsTheStream) { ExpectBreaks(Raw("GET / HTTP/1.1"), "magic"); }

TEST_F(DataPlaneServerTest, EmptyMessageEndsTheStream) { ExpectBreaks(Raw(""), "prefix"); }

TEST_F(DataPlaneServerTest, CutFrameEndsTheStream) {
  FrameBuilder push = Push(5, {0});
  AddSegment(0, 0, {1, 2, 3}, &push);
  grpc::Slice whole;
  ASSERT_TRUE(push.Finish().DumpToSingleSlice(&whole).ok());
  const std::string bytes(reinterpret_cast<const char*>(whole.begin()), whole.size());
  ExpectBreaks(Raw(bytes.substr(0, bytes.size() - 1)), "carries 11");
}

TEST_F(DataPlaneServerTest, HugeHeaderLengthEndsTheStream) {
  ExpectBreaks(Raw(std::string("\xff\xff\xff\x7fLRG1", 8)), "claims a header of 2147483647");
}

TEST_F(DataPlaneServerTest, ReplyFromAClientEndsTheStream) {
  FrameBuilder frame;
  frame.header.set_kind(PUSH_REPLY);
  ExpectBreaks(frame.Finish(), "no request");
}

TEST_F(DataPlaneServerTest, PushWithoutItsFirstFrameEndsTheStream) {
  FrameBuilder push = Push(5, {0}, 0, 1);
  AddSegment(0, 0, {1, 2, 3}, &push);
  ExpectBreaks(push.Finish(), "0 frames");
}

TEST_F(DataPlaneServerTest, PushOnTooManyStreamsEndsTheStream) {
  ExpectBreaks(Push(5, {0}, 1, 9).Finish(), "9 streams");
}

// ---- pushes that are refused ---------------------------------------------------------------------------------------

TEST_F(DataPlaneServerTest, UnknownShardIsAnsweredStaleMap) {
  FrameBuilder push = Push(5, {3});
  AddSegment(3, 0, {1, 2, 3}, &push);
  ExpectRefused(std::move(push), STALE_MAP, "shard 3 isn't here");
}

TEST_F(DataPlaneServerTest, SegmentBeyondItsShardIsRefused) {
  FrameBuilder push = Push(5, {0});
  AddSegment(0, 0, {1, 2, 3, 4}, &push);
  ExpectRefused(std::move(push), REFUSED, "elements 0 and 4 following; expected shard 0 from element 0 of 3");
}

TEST_F(DataPlaneServerTest, SegmentWhoseEndWrapsIsRefused) {
  FrameBuilder push = Push(5, {0});
  AddSegment(0, INT64_MAX, {1, 2, 3}, &push);
  ExpectRefused(std::move(push), REFUSED, "9223372036854775807");
}

TEST_F(DataPlaneServerTest, IncompletePartIsRefused) {
  FrameBuilder push = Push(5, {0});
  AddSegment(0, 0, {1, 2}, &push);
  ExpectRefused(std::move(push), REFUSED, "shard 0 incomplete: 2 of its elements came");
}

TEST_F(DataPlaneServerTest, SegmentOfAnUnnamedShardIsRefused) {
  FrameBuilder push = Push(5, {});
  AddSegment(0, 0, {1, 2, 3}, &push);
  ExpectRefused(std::move(push), REFUSED, "follows the last of the 0 shards");
}

TEST_F(DataPlaneServerTest, PartThatTheEngineRefusesIsReportedAndTheRestDropped) {
  FrameBuilder push = Push(5, {0, 2});
  AddSegment(0, 0, {1, NAN, 3}, &push);
  AddSegment(2, 0, {1, 2, 3, 4, 5, 6, 7}, &push);
  ExpectRefused(std::move(push), REFUSED, "shard 0: gradient element 1 is not finite");
  EXPECT_EQ(bad_push_, "shard 0: gradient element 1 is not finite");
}

TEST_F(DataPlaneServerTest, PushThatMayNotBeginIsAnsweredOnceAndDropped) {
  engine_.RefuseToBegin(FENCED);
  RawStream stream(channel_, "");
  FrameBuilder push = Push(5, {0});
  AddSegment(0, 0, {1, 2, 3}, &push);
  ASSERT_TRUE(stream.Write(std::move(push)));
  EXPECT_EQ(stream.ReadReply().code(), FENCED);
  EXPECT_EQ(engine_.applied_parts(), 0);
  engine_.RefuseToBegin(OK);
  ExpectAlive(&stream);
}

}  // namespace
}  // namespace lagrange

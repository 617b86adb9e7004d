// The worker's client and the ps's server over real sockets: what arrives is what was sent, whatever happens between.

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/channel_arguments.h"
#include "ps/array_engine_testing.h"
#include "ps/data_plane_server.h"
#include "worker/ps_client.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

class Ps {
 public:
  explicit Ps(Engine* engine, int port = 0) : data_plane_(engine, DataPlaneServerOptions()) {
    grpc::ServerBuilder builder;
    ApplyServerArguments(&builder);
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(data_plane_.service());
    server_ = builder.BuildAndStart();
  }
  ~Ps() {
    if (server_ == nullptr) return;
    data_plane_.CloseStreams();
    server_->Shutdown();
    server_->Wait();
  }

  bool listens() const { return server_ != nullptr && port_ != 0; }
  int port() const { return port_; }
  DataPlaneServer* data_plane() { return &data_plane_; }

 private:
  DataPlaneServer data_plane_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// What came of the requests, in order.
class Answers {
 public:
  struct Answer {
    uint64_t request_id = 0;
    FrameKind kind = FRAME_KIND_UNSPECIFIED;
    ReplyHeader reply;
  };

  PsClient::ReplyCallback on_reply() {
    return [this](int32_t, uint64_t request_id, FrameKind kind, const ReplyHeader& reply) {
      absl::MutexLock lock(&mutex_);
      answers_.push_back({request_id, kind, reply});
    };
  }
  PsClient::ReconnectedCallback on_reconnected() {
    return [this](int32_t) {
      absl::MutexLock lock(&mutex_);
      ++reconnected_;
    };
  }
  Answer Next() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](std::deque<Answer>* answers) { return !answers->empty(); }, &answers_));
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  bool none() {
    absl::MutexLock lock(&mutex_);
    return answers_.empty();
  }
  void WaitForReconnection() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* count) { return *count > 0; }, &reconnected_));
  }

 private:
  absl::Mutex mutex_;
  std::deque<Answer> answers_ ABSL_GUARDED_BY(mutex_);
  int reconnected_ ABSL_GUARDED_BY(mutex_) = 0;
};

// One variable, cut into shards of these counts, all on ps 0.
ShardMap MapOf(const std::vector<int64_t>& counts, int port) {
  ShardMap map;
  map.set_version(1);
  int64_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    ShardPlacement* placement = map.add_shards();
    placement->set_shard(static_cast<uint32_t>(i));
    placement->set_row_begin(begin);
    placement->set_element_begin(begin);
    begin += counts[i];
    placement->set_row_end(begin);
    placement->set_element_end(begin);
  }
  VariableSpec* variable = map.add_variables();
  variable->set_name("w");
  variable->add_shape(begin);
  PsAddress* ps = map.add_ps();
  ps->set_address("127.0.0.1:" + std::to_string(port));
  ps->set_incarnation(1);
  return map;
}

struct Parameters {
  explicit Parameters(const std::vector<int64_t>& counts) : versions(counts.size(), 0) {
    for (int64_t count : counts) values.resize(values.size() + static_cast<size_t>(count));
  }
  // Every bit pattern of the low 24 bits comes up, but no NaN: the engine refuses those.
  void Fill() {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = static_cast<uint32_t>(i * 2654435761u) & 0xbf7fffffu;
      std::memcpy(&values[i], &bits, sizeof(bits));
    }
  }
  ParameterLayout layout() { return {{values.data()}, &versions}; }

  std::vector<float> values;
  std::vector<uint64_t> versions;
};

bool Same(const Parameters& a, const Parameters& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

RequestHeader HeaderOf(int32_t batch) {
  RequestHeader header;
  header.mutable_key()->set_batch(batch);
  return header;
}

// Pushes numbers, pulls them, and expects the same ones.
void ExpectRoundTrip(const std::vector<int64_t>& counts, int port, const PsClientOptions& options = PsClientOptions()) {
  Answers answers;
  auto client = NewPsClient(options, answers.on_reply(), answers.on_reconnected());
  ASSERT_THAT(client->UseShardMap(MapOf(counts, port)), IsOk());
  Parameters sent(counts);
  sent.Fill();
  client->Push(0, 1, HeaderOf(1), sent.layout(), {});
  Answers::Answer answer = answers.Next();
  EXPECT_EQ(answer.kind, PUSH_REPLY);
  ASSERT_EQ(answer.reply.code(), OK) << answer.reply.message();
  ASSERT_EQ(answer.reply.results_size(), static_cast<int>(counts.size()));
  Parameters received(counts);
  client->Pull(0, 2, RequestHeader(), received.layout());
  answer = answers.Next();
  EXPECT_EQ(answer.kind, PULL_REPLY);
  ASSERT_EQ(answer.reply.code(), OK) << answer.reply.message();
  EXPECT_EQ(answer.reply.cut(), 9u);
  EXPECT_TRUE(Same(sent, received));
  EXPECT_EQ(received.versions, std::vector<uint64_t>(counts.size(), 1));
}

class TransportSizes : public ::testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(TransportSizes, WhatIsPushedIsPulledBitForBit) {
  ArrayEngine engine(GetParam());
  Ps ps(&engine);
  ExpectRoundTrip(GetParam(), ps.port());
}

std::vector<int64_t> TinyShards() {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < 20'000; ++i) counts.push_back(1 + i % 97);
  return counts;
}

INSTANTIATE_TEST_SUITE_P(Counts, TransportSizes,
                         ::testing::Values(std::vector<int64_t>{1},
                                           // 4 MiB and 4 bytes: above gRPC's default limit.
                                           std::vector<int64_t>{1'048'577},
                                           // 16 MiB at once, and in shards of 4 MiB.
                                           std::vector<int64_t>{4'194'304}, std::vector<int64_t>(4, 1'048'576),
                                           // Around the size below which bytes are copied, and a chunk's end.
                                           std::vector<int64_t>{2047, 2048, 2049, 262'143, 262'144, 262'145, 3},
                                           TinyShards()));

TEST(Transport, OneChannelAndSmallChunksCarryTheSame) {
  const std::vector<int64_t> counts = {100'000, 1, 30'000};
  ArrayEngine engine(counts);
  Ps ps(&engine);
  PsClientOptions options;
  options.channels_per_ps = 1;
  options.chunk_bytes = 5000;
  ExpectRoundTrip(counts, ps.port(), options);
}

TEST(Transport, ProxyVariablesAreNotObeyed) {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"}) {
    setenv(name, "http://127.0.0.1:9", 1);
  }
  ArrayEngine engine({5});
  Ps ps(&engine);
  ExpectRoundTrip({5}, ps.port());
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"}) unsetenv(name);
}

TEST(Transport, SecondServerOnAPortFails) {
  ArrayEngine engine({5});
  Ps first(&engine);
  Ps second(&engine, first.port());
  EXPECT_TRUE(first.listens());
  EXPECT_FALSE(second.listens());
}

class TransportTest : public ::testing::Test {
 protected:
  TransportTest() : engine_(counts_), ps_(std::make_unique<Ps>(&engine_)), sent_(counts_), received_(counts_) {
    client_ = NewPsClient(PsClientOptions(), answers_.on_reply(), answers_.on_reconnected());
    EXPECT_THAT(client_->UseShardMap(MapOf(counts_, ps_->port())), IsOk());
    sent_.Fill();
  }

  const std::vector<int64_t> counts_ = {1'000'000, 2, 1'000'000};
  ArrayEngine engine_;
  std::unique_ptr<Ps> ps_;
  Parameters sent_;
  Parameters received_;
  Answers answers_;
  // First to go: its callbacks use the rest.
  std::unique_ptr<PsClient> client_;
};

TEST_F(TransportTest, PushRepeatedAfterALostReplyIsAppliedOnce) {
  engine_.DropNextPushAnswer();
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  engine_.WaitForEndedPushes(1);
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  // The second may have come while the first was still leaving, and then counts as the same sending.
  while (engine_.ended_pushes() < 2) client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  const Answers::Answer answer = answers_.Next();
  ASSERT_EQ(answer.reply.code(), OK);
  for (const ShardResult& result : answer.reply.results()) EXPECT_EQ(result.outcome(), DUPLICATE);
  EXPECT_EQ(engine_.applied_parts(), 3);
}

TEST_F(TransportTest, PushOfSomeShardsTouchesThoseAlone) {
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {1});
  ASSERT_EQ(answers_.Next().reply.code(), OK);
  EXPECT_EQ(engine_.applied_parts(), 1);
  EXPECT_EQ(engine_.ValuesOf(1)[1], sent_.values[1'000'001]);
  EXPECT_EQ(engine_.ValuesOf(0)[1], 0.0f);
}

TEST_F(TransportTest, HeldPullIsAnsweredWhenItIsFree) {
  engine_.HoldPulls();
  client_->Pull(0, 1, RequestHeader(), received_.layout());
  engine_.WaitForHeldPulls(1);
  client_->Push(0, 2, HeaderOf(1), sent_.layout(), {});
  EXPECT_EQ(answers_.Next().request_id, 2u);
  ps_->data_plane()->Deliver(engine_.ReleasePulls());
  EXPECT_EQ(answers_.Next().request_id, 1u);
  EXPECT_TRUE(Same(sent_, received_));
}

TEST_F(TransportTest, RestartedServerIsFoundAgain) {
  engine_.HoldPulls();
  client_->Pull(0, 1, RequestHeader(), received_.layout());
  engine_.WaitForHeldPulls(1);
  const int port = ps_->port();
  ps_.reset();
  ps_ = std::make_unique<Ps>(&engine_, port);
  ASSERT_TRUE(ps_->listens());
  answers_.WaitForReconnection();
  EXPECT_TRUE(answers_.none());
  engine_.ReleasePulls();
  client_->Push(0, 2, HeaderOf(1), sent_.layout(), {});
  EXPECT_EQ(answers_.Next().reply.code(), OK);
  client_->Pull(0, 3, RequestHeader(), received_.layout());
  EXPECT_EQ(answers_.Next().request_id, 3u);
  EXPECT_TRUE(Same(sent_, received_));
}

TEST_F(TransportTest, RequestsMadeBeforeTheServerIsThereGoOutWhenItIs) {
  const int port = ps_->port();
  client_.reset();
  ps_.reset();
  client_ = NewPsClient(PsClientOptions(), answers_.on_reply(), answers_.on_reconnected());
  ASSERT_THAT(client_->UseShardMap(MapOf(counts_, port)), IsOk());
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  ps_ = std::make_unique<Ps>(&engine_, port);
  EXPECT_EQ(answers_.Next().reply.code(), OK);
}

TEST_F(TransportTest, NewIncarnationOfAPsIsConnectedAnew) {
  ShardMap map = MapOf(counts_, ps_->port());
  map.set_version(2);
  map.mutable_ps(0)->set_incarnation(2);
  ASSERT_THAT(client_->UseShardMap(map), IsOk());
  answers_.WaitForReconnection();
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  EXPECT_EQ(answers_.Next().reply.code(), OK);
}

TEST_F(TransportTest, AnswerThatDoesNotFitTheMapIsRefusedBeforeItIsWritten) {
  // As many elements in all as the map says, but two shards of other sizes.
  engine_.Replace(1, 1'000'000);
  engine_.Replace(2, 2);
  received_.Fill();
  client_->Pull(0, 1, RequestHeader(), received_.layout());
  Answers::Answer answer = answers_.Next();
  EXPECT_EQ(answer.reply.code(), REFUSED);
  EXPECT_THAT(answer.reply.message(), HasSubstr("of shard 1, which has 2"));
  EXPECT_EQ(received_.values[1'500'000], sent_.values[1'500'000]);
  engine_.Replace(1, 7);
  client_->Pull(0, 2, RequestHeader(), received_.layout());
  answer = answers_.Next();
  EXPECT_EQ(answer.reply.code(), REFUSED);
  EXPECT_THAT(answer.reply.message(), HasSubstr("expected 8000008"));
}

TEST_F(TransportTest, NonFiniteGradientIsRefusedAndTheNextPushTaken) {
  sent_.values[1'000'001] = NAN;
  client_->Push(0, 1, HeaderOf(1), sent_.layout(), {});
  const Answers::Answer answer = answers_.Next();
  EXPECT_EQ(answer.reply.code(), REFUSED);
  EXPECT_EQ(answer.reply.message(), "shard 1: gradient element 1 is not finite");
  sent_.values[1'000'001] = 0;
  client_->Push(0, 2, HeaderOf(2), sent_.layout(), {});
  EXPECT_EQ(answers_.Next().reply.code(), OK);
}

TEST_F(TransportTest, ForgottenPullIsNeitherWrittenNorAnswered) {
  engine_.HoldPulls();
  {
    Parameters forgotten(counts_);
    client_->Pull(0, 1, RequestHeader(), forgotten.layout());
    engine_.WaitForHeldPulls(1);
    client_->Forget(0, 1);
  }
  ps_->data_plane()->Deliver(engine_.ReleasePulls());
  client_->Pull(0, 2, RequestHeader(), received_.layout());
  EXPECT_EQ(answers_.Next().request_id, 2u);
  EXPECT_TRUE(answers_.none());
}

TEST_F(TransportTest, ForgottenPushLeavesItsGradientsAlone) {
  for (uint64_t id = 1; id <= 20; ++id) {
    auto gradients = std::make_unique<Parameters>(counts_);
    client_->Push(0, id, HeaderOf(static_cast<int32_t>(id)), gradients->layout(), {});
    client_->Forget(0, id);
  }
  client_->Push(0, 100, HeaderOf(100), sent_.layout(), {});
  while (answers_.Next().request_id != 100) {
  }
}

TEST_F(TransportTest, ClientEndsWithRequestsOutstanding) {
  engine_.HoldPulls();
  client_->Pull(0, 1, RequestHeader(), received_.layout());
  client_->Push(0, 2, HeaderOf(1), sent_.layout(), {});
  client_.reset();
}

TEST(PsClient, RefusesAMapWithAHole) {
  auto client = NewPsClient(PsClientOptions(), nullptr, nullptr);
  ShardMap map = MapOf({5, 6}, 1);
  map.mutable_shards(1)->set_element_begin(6);
  EXPECT_THAT(client->UseShardMap(map), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lagrange

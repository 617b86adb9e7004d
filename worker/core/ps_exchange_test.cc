#include "worker/core/ps_exchange.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

// Shard i lies on ps placement[i].
ShardMap MapOf(int ps_count, std::vector<int32_t> placement) {
  ShardMap map;
  for (int i = 0; i < ps_count; ++i) map.add_ps()->set_ps_index(i);
  for (size_t i = 0; i < placement.size(); ++i) {
    map.add_shards()->set_shard(i);
    map.mutable_shards(i)->set_ps_index(placement[i]);
  }
  return map;
}

std::vector<PsExchange::Request> Send(PsExchange* exchange, absl::Time now = absl::UnixEpoch()) {
  std::vector<PsExchange::Request> sent;
  exchange->SendDue(now, absl::Seconds(10), [&sent](const PsExchange::Request& request) { sent.push_back(request); });
  return sent;
}

class PsExchangeTest : public testing::Test {
 protected:
  void Answer(const PsExchange::Request& request) {
    exchange_.FindOpen(request.ps_index, request.request_id)->answered = true;
  }

  uint64_t next_id_ = 1;
  PsExchange exchange_;
};

TEST_F(PsExchangeTest, HeldRequestGoesOutWhenReleased) {
  exchange_.Begin(MapOf(2, {0, 1}), &next_id_);
  exchange_.Hold([](int32_t ps_index) { return ps_index == 1; });
  EXPECT_EQ(Send(&exchange_).size(), 1u);
  exchange_.Release(1);
  EXPECT_EQ(Send(&exchange_).size(), 1u);
}

TEST_F(PsExchangeTest, HeldRequestIsNotDue) {
  exchange_.Begin(MapOf(1, {0}), &next_id_);
  exchange_.Hold([](int32_t) { return true; });
  EXPECT_EQ(exchange_.next_due(), absl::InfiniteFuture());
}

TEST_F(PsExchangeTest, IdOfAnotherPsOpensNothing) {
  exchange_.Begin(MapOf(2, {0, 1}), &next_id_);
  EXPECT_EQ(exchange_.FindOpen(0, 2), nullptr);
  EXPECT_NE(exchange_.FindOpen(1, 2), nullptr);
}

TEST_F(PsExchangeTest, MovedShardKeepsItOpen) {
  exchange_.Begin(MapOf(1, {0}), &next_id_);
  Answer(Send(&exchange_)[0]);
  EXPECT_TRUE(exchange_.complete());
  exchange_.AddMoved(0);
  EXPECT_FALSE(exchange_.complete());
}

TEST_F(PsExchangeTest, ReplanSendsUnansweredShardsWhereTheyAreNow) {
  const ShardMap before = MapOf(3, {0, 1, 2, 1});
  const ShardMap after = MapOf(3, {0, 0, 2, 2});
  exchange_.Begin(before, &next_id_);
  for (const auto& request : Send(&exchange_)) {
    if (request.ps_index != 1) Answer(request);
  }
  exchange_.Replan(before, after, absl::InfinitePast(), &next_id_);
  const auto sent = Send(&exchange_);
  // ps 1 had not answered: it hears of the step, though it holds nothing now.
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(sent[0].shards, std::vector<uint32_t>{1});
  EXPECT_TRUE(sent[1].shards.empty());
  EXPECT_EQ(sent[2].shards, std::vector<uint32_t>{3});
  for (const auto& request : sent) Answer(request);
  EXPECT_TRUE(exchange_.complete());
}

TEST_F(PsExchangeTest, ReplannedRequestKeepsItsShardsThroughASecondReplan) {
  const ShardMap before = MapOf(2, {0, 0, 1});
  exchange_.Begin(before, &next_id_);
  for (const auto& request : Send(&exchange_)) Answer(request);
  exchange_.AddMoved(1);
  exchange_.Replan(before, MapOf(2, {0, 1, 1}), absl::InfinitePast(), &next_id_);
  exchange_.Replan(MapOf(2, {0, 1, 1}), before, absl::InfinitePast(), &next_id_);
  const auto sent = Send(&exchange_);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].ps_index, 0);
  EXPECT_EQ(sent[0].shards, std::vector<uint32_t>{1});
}

TEST(SamePlacement, NoticesAMovedShardAndANewPs) {
  EXPECT_TRUE(SamePlacement(MapOf(2, {0, 1}), MapOf(2, {0, 1})));
  EXPECT_FALSE(SamePlacement(MapOf(2, {0, 1}), MapOf(2, {1, 1})));
  EXPECT_FALSE(SamePlacement(MapOf(2, {0, 1}), MapOf(3, {0, 1})));
}

}  // namespace
}  // namespace lagrange

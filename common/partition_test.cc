#include "common/partition.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kShardBytes = 4 << 20;

VariableSpec Variable(const std::string& name, const std::vector<int64_t>& shape) {
  VariableSpec variable;
  variable.set_name(name);
  for (const int64_t dimension : shape) variable.add_shape(dimension);
  return variable;
}

std::vector<ShardPlacement> Cut(const std::vector<VariableSpec>& variables, int64_t shard_bytes = kShardBytes) {
  return CutIntoShards(variables, shard_bytes).value();
}

std::vector<int64_t> RowsOfEach(const std::vector<ShardPlacement>& shards) {
  std::vector<int64_t> rows;
  for (const ShardPlacement& shard : shards) rows.push_back(shard.row_end() - shard.row_begin());
  return rows;
}

TEST(ElementCount, OfAScalarIsOne) { EXPECT_EQ(ElementCount(Variable("s", {})).value(), 1); }

TEST(ElementCount, IsTheProduct) { EXPECT_EQ(ElementCount(Variable("v", {784, 256})).value(), 200704); }

TEST(ElementCount, RefusesADimensionUnderOne) {
  EXPECT_THAT(std::string(ElementCount(Variable("w", {3, 0})).status().message()),
              HasSubstr("variable \"w\": expected every dimension to be at least 1, got 0"));
  EXPECT_FALSE(ElementCount(Variable("w", {-1})).ok());
}

TEST(ElementCount, RefusesAProductThatOverflows) {
  EXPECT_THAT(std::string(ElementCount(Variable("w", {int64_t{1} << 40, int64_t{1} << 40})).status().message()),
              HasSubstr("variable \"w\": more than 68719476736 elements"));
  EXPECT_FALSE(ElementCount(Variable("w", {3037000500, 3037000500, 2})).ok());
}

TEST(CutIntoShards, SmallVariablesAreOneShardEach) {
  const std::vector<ShardPlacement> shards = Cut({Variable("s", {}), Variable("b", {10}), Variable("k", {784, 256})});
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[0].element_end(), 1);
  EXPECT_EQ(shards[0].row_end(), 1);
  EXPECT_EQ(shards[2].shard(), 2u);
  EXPECT_EQ(shards[2].variable(), 2u);
  EXPECT_EQ(shards[2].row_end(), 784);
  EXPECT_EQ(shards[2].element_end(), 784 * 256);
}

// 10 rows of 1 MiB, at most 4 rows a shard: 3 shards, the first takes the remainder.
TEST(CutIntoShards, FirstShardsTakeTheRemainder) {
  EXPECT_THAT(RowsOfEach(Cut({Variable("k", {10, 1 << 18})})), ElementsAre(4, 3, 3));
}

TEST(CutIntoShards, ElementsFollowRows) {
  const std::vector<ShardPlacement> shards = Cut({Variable("k", {10, 2, 1 << 17})});
  ASSERT_EQ(shards.size(), 3u);
  EXPECT_EQ(shards[1].row_begin(), 4);
  EXPECT_EQ(shards[1].element_begin(), int64_t{4} << 18);
  EXPECT_EQ(shards[1].element_end(), int64_t{7} << 18);
}

TEST(CutIntoShards, WideRowIsAShardOfItsOwn) {
  EXPECT_THAT(RowsOfEach(Cut({Variable("k", {3, 1 << 21})})), ElementsAre(1, 1, 1));
}

// Rows of 40,000 bytes: one is under 64 KiB, so two go together although they exceed the aim.
TEST(CutIntoShards, NoneIsUnder64KiB) {
  EXPECT_THAT(RowsOfEach(Cut({Variable("k", {5, 10000})}, kMinShardBytes)), ElementsAre(3, 2));
}

TEST(CutIntoShards, ShardsStayBetweenTheBounds) {
  for (const int64_t rows : {1, 2, 100, 1023, 1025, 99991}) {
    for (const int64_t row_elements : {1, 3, 256, 4099}) {
      const std::vector<ShardPlacement> shards = Cut({Variable("k", {rows, row_elements})}, 1 << 20);
      int64_t covered = 0;
      for (const ShardPlacement& shard : shards) {
        const int64_t bytes = 4 * (shard.element_end() - shard.element_begin());
        EXPECT_EQ(shard.row_begin(), covered);
        EXPECT_LE(bytes, 1 << 20);
        if (shards.size() > 1) {
          EXPECT_GE(bytes, kMinShardBytes);
        }
        covered = shard.row_end();
      }
      EXPECT_EQ(covered, rows);
      // As few as the aim allows.
      EXPECT_EQ(shards.size(), (rows + (1 << 20) / (4 * row_elements) - 1) / ((1 << 20) / (4 * row_elements)));
    }
  }
}

TEST(CutIntoShards, RefusesTwoVariablesOfOneName) {
  const std::vector<VariableSpec> variables = {Variable("k", {1}), Variable("k", {2})};
  EXPECT_THAT(std::string(CutIntoShards(variables, kShardBytes).status().message()),
              HasSubstr("two variables have the name \"k\""));
}

TEST(CutIntoShards, RefusesTinyShards) {
  const std::vector<VariableSpec> variables = {Variable("k", {1})};
  EXPECT_THAT(std::string(CutIntoShards(variables, 0).status().message()),
              HasSubstr("shard_bytes: expected at least 65536, got 0"));
}

TEST(CutIntoShards, RefusesTooManyShards) {
  const std::vector<VariableSpec> variables = {Variable("k", {int64_t{1} << 36})};
  EXPECT_THAT(std::string(CutIntoShards(variables, kMinShardBytes).status().message()),
              HasSubstr("variable \"k\": more than 100000 shards with cluster.shard_bytes 65536"));
}

std::vector<int64_t> LoadsOf(const std::vector<ShardPlacement>& shards, int32_t ps_count) {
  std::vector<int64_t> loads(ps_count);
  for (const ShardPlacement& shard : shards) {
    loads.at(shard.ps_index()) += shard.element_end() - shard.element_begin();
  }
  return loads;
}

TEST(PlaceShards, LargestGoFirstToTheLeastLoaded) {
  std::vector<ShardPlacement> shards =
      Cut({Variable("a", {3}), Variable("b", {8}), Variable("c", {5}), Variable("d", {5})});
  PlaceShards(2, &shards);
  // 8 -> 0; 5 (c) -> 1; 5 (d) -> 1; 3 -> 0.
  EXPECT_EQ(shards[0].ps_index(), 0);
  EXPECT_EQ(shards[1].ps_index(), 0);
  EXPECT_EQ(shards[2].ps_index(), 1);
  EXPECT_EQ(shards[3].ps_index(), 1);
}

TEST(PlaceShards, TiesGoByNumberAndIndex) {
  std::vector<ShardPlacement> shards = Cut({Variable("a", {5}), Variable("b", {5}), Variable("c", {5})});
  PlaceShards(3, &shards);
  EXPECT_EQ(shards[0].ps_index(), 0);
  EXPECT_EQ(shards[1].ps_index(), 1);
  EXPECT_EQ(shards[2].ps_index(), 2);
}

TEST(PlaceShards, LoadsDifferByOneShardAtMost) {
  std::vector<ShardPlacement> shards = Cut(
      {Variable("a", {100000, 100}), Variable("b", {784, 256}), Variable("c", {256, 128}), Variable("d", {50000, 33})});
  int64_t largest = 0;
  for (const ShardPlacement& shard : shards) {
    largest = std::max(largest, shard.element_end() - shard.element_begin());
  }
  for (const int32_t ps_count : {2, 3, 7}) {
    PlaceShards(ps_count, &shards);
    const std::vector<int64_t> loads = LoadsOf(shards, ps_count);
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()) - *std::min_element(loads.begin(), loads.end()), largest);
  }
}

TEST(PlaceShards, MorePsThanRowsLeavesSomeEmpty) {
  std::vector<ShardPlacement> shards = Cut({Variable("table", {10, 4})});
  PlaceShards(16, &shards);
  ASSERT_EQ(shards.size(), 1u);
  EXPECT_EQ(shards[0].ps_index(), 0);
}

TEST(PlaceShards, ChangesNothingButThePs) {
  const std::vector<ShardPlacement> cut = Cut({Variable("a", {100000, 100})});
  std::vector<ShardPlacement> placed = cut;
  PlaceShards(5, &placed);
  for (size_t i = 0; i < cut.size(); ++i) {
    placed[i].clear_ps_index();
    EXPECT_EQ(placed[i].SerializeAsString(), cut[i].SerializeAsString());
  }
}

ShardMap WholeMap() {
  ShardMap map;
  map.set_version(1);
  std::vector<VariableSpec> variables = {Variable("k", {10, 1 << 18}), Variable("b", {10})};
  std::vector<ShardPlacement> shards = Cut(variables);
  PlaceShards(2, &shards);
  for (const VariableSpec& variable : variables) *map.add_variables() = variable;
  for (const ShardPlacement& shard : shards) *map.add_shards() = shard;
  for (int32_t ps = 0; ps < 2; ++ps) map.add_ps()->set_ps_index(ps);
  return map;
}

TEST(ValidateShardMap, AcceptsAWholeMap) { EXPECT_TRUE(ValidateShardMap(WholeMap()).ok()); }

struct BadMap {
  const char* name;
  std::function<void(ShardMap*)> spoil;
  const char* message;
};

class ValidateShardMapRefuses : public testing::TestWithParam<BadMap> {};

TEST_P(ValidateShardMapRefuses, NamingTheShard) {
  ShardMap map = WholeMap();
  GetParam().spoil(&map);
  const absl::Status status = ValidateShardMap(map);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Maps, ValidateShardMapRefuses,
    testing::Values(BadMap{"Gap", [](ShardMap* m) { m->mutable_shards(1)->set_row_begin(5); },
                           "shard 1: expected it to begin at row 4, got 5"},
                    BadMap{"Overlap", [](ShardMap* m) { m->mutable_shards(1)->set_row_begin(3); },
                           "shard 1: expected it to begin at row 4, got 3"},
                    BadMap{"EmptyShard", [](ShardMap* m) { m->mutable_shards(0)->set_row_end(0); },
                           "shard 0: expected it to end at row 1 to 10, got 0"},
                    BadMap{"PastTheEnd", [](ShardMap* m) { m->mutable_shards(2)->set_row_end(11); },
                           "shard 2: expected it to end at row 8 to 10, got 11"},
                    BadMap{"Elements", [](ShardMap* m) { m->mutable_shards(0)->set_element_end(3); },
                           "shard 0: expected elements 0 to 1048576, got 0 to 3"},
                    BadMap{"Number", [](ShardMap* m) { m->mutable_shards(1)->set_shard(7); },
                           "shard 7: expected the number 1"},
                    BadMap{"Missing", [](ShardMap* m) { m->mutable_shards()->RemoveLast(); },
                           "shard 3: expected row 0 of variable \"b\""},
                    BadMap{"Surplus", [](ShardMap* m) { *m->add_shards() = m->shards(3); }, "expected 4 shards, got 5"},
                    BadMap{"WrongVariable", [](ShardMap* m) { m->mutable_shards(2)->set_variable(1); },
                           "shard 2: expected row 7 of variable \"k\""},
                    BadMap{"UnknownPs", [](ShardMap* m) { m->mutable_shards(2)->set_ps_index(9); },
                           "shard 2: ps 9 is not in the map"},
                    BadMap{"NegativePs", [](ShardMap* m) { m->mutable_shards(2)->set_ps_index(-1); },
                           "shard 2: ps -1 is not in the map"},
                    BadMap{"NoPs", [](ShardMap* m) { m->clear_ps(); }, "expected 1 to 1024 ps, got 0"},
                    BadMap{"PsTwice", [](ShardMap* m) { m->mutable_ps(1)->set_ps_index(0); },
                           "ps 0 is out of range or listed twice"},
                    BadMap{"BadShape", [](ShardMap* m) { m->mutable_variables(1)->set_shape(0, 0); },
                           "variable \"b\": expected every dimension to be at least 1, got 0"},
                    BadMap{"NameTwice", [](ShardMap* m) { m->mutable_variables(1)->set_name("k"); },
                           "two variables have the name \"k\""}),
    [](const testing::TestParamInfo<BadMap>& info) { return info.param.name; });

TEST(ValidateShardMap, PsMayBeEmpty) {
  ShardMap map = WholeMap();
  map.add_ps()->set_ps_index(2);
  EXPECT_TRUE(ValidateShardMap(map).ok());
}

}  // namespace
}  // namespace lagrange

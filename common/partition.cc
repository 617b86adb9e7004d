#include "common/partition.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"

namespace lagrange {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// A scalar counts as one row.
int64_t RowCount(const VariableSpec& variable) { return variable.shape_size() == 0 ? 1 : variable.shape(0); }

// "nearest to shard_bytes without exceeding it" bounds the rows of a shard from above, kMinShardBytes from below; where
// both can't be had, the lower bound wins.
int64_t ShardCount(int64_t rows, int64_t row_bytes, int64_t shard_bytes) {
  const int64_t most_rows = std::max<int64_t>(1, shard_bytes / row_bytes);
  const int64_t fewest_rows = CeilDiv(kMinShardBytes, row_bytes);
  return std::max<int64_t>(1, std::min(CeilDiv(rows, most_rows), rows / fewest_rows));
}

template <typename Variables>
absl::Status CheckNames(const Variables& variables) {
  std::set<std::string> names;
  for (const VariableSpec& variable : variables) {
    if (!names.insert(variable.name()).second) {
      return absl::InvalidArgumentError(absl::StrCat("two variables have the name \"", variable.name(), "\""));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ElementCount(const VariableSpec& variable) {
  int64_t count = 1;
  for (const int64_t dimension : variable.shape()) {
    if (dimension < 1) {
      return absl::InvalidArgumentError(absl::StrCat("variable \"", variable.name(),
                                                     "\": expected every dimension to be at least 1, got ", dimension));
    }
    if (dimension > kMaxVariableElements / count) {
      return absl::InvalidArgumentError(
          absl::StrCat("variable \"", variable.name(), "\": more than ", kMaxVariableElements, " elements"));
    }
    count *= dimension;
  }
  return count;
}

absl::StatusOr<std::vector<ShardPlacement>> CutIntoShards(absl::Span<const VariableSpec> variables,
                                                          int64_t shard_bytes) {
  if (shard_bytes < kMinShardBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard_bytes: expected at least ", kMinShardBytes, ", got ", shard_bytes));
  }
  RETURN_IF_ERROR(CheckNames(variables));
  std::vector<ShardPlacement> shards;
  for (size_t v = 0; v < variables.size(); ++v) {
    ASSIGN_OR_RETURN(const int64_t elements, ElementCount(variables[v]));
    const int64_t rows = RowCount(variables[v]);
    const int64_t row_elements = elements / rows;
    const int64_t count = ShardCount(rows, row_elements * static_cast<int64_t>(sizeof(float)), shard_bytes);
    if (count > kMaxShardCount - static_cast<int64_t>(shards.size())) {
      return absl::InvalidArgumentError(absl::StrCat("variable \"", variables[v].name(), "\": more than ",
                                                     kMaxShardCount, " shards with cluster.shard_bytes ", shard_bytes));
    }
    int64_t row = 0;
    for (int64_t i = 0; i < count; ++i) {
      ShardPlacement& shard = shards.emplace_back();
      shard.set_shard(static_cast<uint32_t>(shards.size() - 1));
      shard.set_variable(static_cast<uint32_t>(v));
      shard.set_row_begin(row);
      shard.set_element_begin(row * row_elements);
      row += rows / count + (i < rows % count ? 1 : 0);
      shard.set_row_end(row);
      shard.set_element_end(row * row_elements);
    }
  }
  return shards;
}

void PlaceShards(int32_t ps_count, std::vector<ShardPlacement>* shards) {
  CHECK(ps_count >= 1 && ps_count <= kMaxPsCount);
  std::vector<ShardPlacement*> by_size;
  by_size.reserve(shards->size());
  for (ShardPlacement& shard : *shards) by_size.push_back(&shard);
  const auto elements = [](const ShardPlacement& shard) { return shard.element_end() - shard.element_begin(); };
  std::sort(by_size.begin(), by_size.end(), [&elements](const ShardPlacement* a, const ShardPlacement* b) {
    return std::make_pair(-elements(*a), a->shard()) < std::make_pair(-elements(*b), b->shard());
  });
  // (elements placed, ps), the fewest on top.
  using Load = std::pair<int64_t, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<Load>> loads;
  for (int32_t ps = 0; ps < ps_count; ++ps) loads.emplace(0, ps);
  for (ShardPlacement* shard : by_size) {
    const Load least = loads.top();
    loads.pop();
    shard->set_ps_index(least.second);
    loads.emplace(least.first + elements(*shard), least.second);
  }
}

namespace {

absl::Status CheckPs(const ShardMap& map, std::set<int32_t>* known) {
  if (map.ps_size() < 1 || map.ps_size() > kMaxPsCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard map: expected 1 to ", kMaxPsCount, " ps, got ", map.ps_size()));
  }
  for (const PsAddress& ps : map.ps()) {
    if (ps.ps_index() < 0 || ps.ps_index() >= kMaxPsCount || !known->insert(ps.ps_index()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("shard map: ps ", ps.ps_index(), " is out of range or listed twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardError(const ShardPlacement& shard, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("shard map: shard ", shard.shard(), ": ", message));
}

// `row` is the first row of the variable that no shard before this one has.
absl::Status CheckShard(const ShardPlacement& shard, int64_t row, int64_t rows, int64_t row_elements) {
  if (shard.row_begin() != row) {
    return ShardError(shard, absl::StrCat("expected it to begin at row ", row, ", got ", shard.row_begin()));
  }
  if (shard.row_end() <= row || shard.row_end() > rows) {
    return ShardError(shard,
                      absl::StrCat("expected it to end at row ", row + 1, " to ", rows, ", got ", shard.row_end()));
  }
  if (shard.element_begin() != shard.row_begin() * row_elements ||
      shard.element_end() != shard.row_end() * row_elements) {
    return ShardError(shard, absl::StrCat("expected elements ", shard.row_begin() * row_elements, " to ",
                                          shard.row_end() * row_elements, ", got ", shard.element_begin(), " to ",
                                          shard.element_end()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateShardMap(const ShardMap& map) {
  if (map.shards_size() > kMaxShardCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard map: expected at most ", kMaxShardCount, " shards, got ", map.shards_size()));
  }
  std::set<int32_t> known_ps;
  RETURN_IF_ERROR(CheckPs(map, &known_ps));
  RETURN_IF_ERROR(CheckNames(map.variables()));
  int next = 0;
  for (int v = 0; v < map.variables_size(); ++v) {
    ASSIGN_OR_RETURN(const int64_t elements, ElementCount(map.variables(v)));
    const int64_t rows = RowCount(map.variables(v));
    int64_t row = 0;
    for (; row < rows; ++next) {
      if (next == map.shards_size() || map.shards(next).variable() != static_cast<uint32_t>(v)) {
        return absl::InvalidArgumentError(absl::StrCat("shard map: shard ", next, ": expected row ", row,
                                                       " of variable \"", map.variables(v).name(), "\""));
      }
      const ShardPlacement& shard = map.shards(next);
      if (shard.shard() != static_cast<uint32_t>(next)) {
        return ShardError(shard, absl::StrCat("expected the number ", next));
      }
      RETURN_IF_ERROR(CheckShard(shard, row, rows, elements / rows));
      if (known_ps.count(shard.ps_index()) == 0) {
        return ShardError(shard, absl::StrCat("ps ", shard.ps_index(), " is not in the map"));
      }
      row = shard.row_end();
    }
  }
  if (next != map.shards_size()) {
    return ShardError(map.shards(next), absl::StrCat("expected ", next, " shards, got ", map.shards_size()));
  }
  return absl::OkStatus();
}

}  // namespace lagrange

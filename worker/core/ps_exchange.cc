#include "worker/core/ps_exchange.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lagrange {

void PsExchange::Begin(const ShardMap& map, uint64_t* next_request_id) {
  requests_.clear();
  moved_.clear();
  for (const PsAddress& ps : map.ps()) {
    Request request;
    request.ps_index = ps.ps_index();
    request.request_id = (*next_request_id)++;
    requests_.push_back(std::move(request));
  }
}

PsExchange::Request* PsExchange::FindOpen(int32_t ps_index, uint64_t request_id) {
  for (Request& request : requests_) {
    if (request.ps_index == ps_index && request.request_id == request_id && !request.answered) return &request;
  }
  return nullptr;
}

bool PsExchange::complete() const {
  return moved_.empty() &&
         std::all_of(requests_.begin(), requests_.end(), [](const Request& request) { return request.answered; });
}

bool PsExchange::Answered(int32_t ps_index) const {
  return std::all_of(requests_.begin(), requests_.end(),
                     [ps_index](const Request& request) { return request.ps_index != ps_index || request.answered; });
}

void PsExchange::Release(int32_t ps_index) {
  for (Request& request : requests_) {
    if (request.ps_index == ps_index) request.held = false;
  }
}

void PsExchange::ReleaseAll() {
  for (Request& request : requests_) request.held = false;
}

void PsExchange::ExpireRequestsTo(int32_t ps_index) {
  for (Request& request : requests_) {
    if (request.ps_index == ps_index) request.due = absl::InfinitePast();
  }
}

void PsExchange::ExpireAll() {
  for (Request& request : requests_) request.due = absl::InfinitePast();
}

void PsExchange::Replan(const ShardMap& old_map, const ShardMap& new_map, absl::Time due, uint64_t* next_request_id) {
  std::set<uint32_t> open(moved_.begin(), moved_.end());
  std::set<int32_t> answered;
  std::vector<Request> kept;
  for (Request& request : requests_) {
    if (request.answered) {
      answered.insert(request.ps_index);
      kept.push_back(std::move(request));
      continue;
    }
    open.insert(request.shards.begin(), request.shards.end());
    if (!request.shards.empty()) continue;
    for (const ShardPlacement& shard : old_map.shards()) {
      if (shard.ps_index() == request.ps_index) open.insert(shard.shard());
    }
  }
  for (const PsAddress& ps : new_map.ps()) {
    Request request;
    bool all = true;
    for (const ShardPlacement& shard : new_map.shards()) {
      if (shard.ps_index() != ps.ps_index()) continue;
      if (open.count(shard.shard()) > 0) {
        request.shards.push_back(shard.shard());
      } else {
        all = false;
      }
    }
    if (answered.count(ps.ps_index()) > 0 && request.shards.empty()) continue;
    if (all) request.shards.clear();
    request.ps_index = ps.ps_index();
    request.request_id = (*next_request_id)++;
    request.due = due;
    kept.push_back(std::move(request));
  }
  requests_ = std::move(kept);
  moved_.clear();
}

absl::Time PsExchange::next_due() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Request& request : requests_) {
    if (!request.answered && !request.held) next = std::min(next, request.due);
  }
  return next;
}

bool SamePlacement(const ShardMap& a, const ShardMap& b) {
  if (a.shards_size() != b.shards_size() || a.ps_size() != b.ps_size()) return false;
  for (int i = 0; i < a.shards_size(); ++i) {
    if (a.shards(i).shard() != b.shards(i).shard() || a.shards(i).ps_index() != b.shards(i).ps_index()) return false;
  }
  for (int i = 0; i < a.ps_size(); ++i) {
    if (a.ps(i).ps_index() != b.ps(i).ps_index()) return false;
  }
  return true;
}

}  // namespace lagrange

// One pull or one push of a step: a request to each ps of the map, each repeated until its ps has answered.
//
// For the step loop. Keeps who has answered, when the others are asked again, and which shards have moved; a repeat has
// the same request id, so a ps and the client can tell it from a new one. Caller synchronizes. Owns only numbers.

#ifndef WORKER_CORE_PS_EXCHANGE_H_
#define WORKER_CORE_PS_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

class PsExchange {
 public:
  struct Request {
    int32_t ps_index = 0;
    uint64_t request_id = 0;
    // Empty: all shards that the map gives the ps.
    std::vector<uint32_t> shards;
    // When it goes out (again).
    absl::Time due = absl::InfinitePast();
    // Not to go out before Release.
    bool held = false;
    bool answered = false;
  };

  // One request to each ps of the map, due at once; ids are taken from *next_request_id.
  void Begin(const ShardMap& map, uint64_t* next_request_id);

  // The request that this reply answers; null when it was answered before or is not of this exchange.
  Request* FindOpen(int32_t ps_index, uint64_t request_id);

  // All have answered and no shard waits for the map that says where it went.
  bool complete() const;
  bool Answered(int32_t ps_index) const;

  // Requests to ps that `hold` names wait for Release.
  template <typename Predicate>
  void Hold(Predicate hold) {
    for (Request& request : requests_) request.held = !request.answered && hold(request.ps_index);
  }
  void Release(int32_t ps_index);
  void ReleaseAll();

  // Unanswered requests to the ps are due at once.
  void ExpireRequestsTo(int32_t ps_index);
  void ExpireAll();

  // A ps said that this shard is not there any more.
  void AddMoved(uint32_t shard) { moved_.push_back(shard); }
  bool has_moved() const { return !moved_.empty(); }

  // Spreads what isn't acknowledged over another map: shards of unanswered requests, as the old map placed them, and
  // the moved ones. Requests go out after `due`. A ps that has not answered yet gets a request even without such
  // shards.
  void Replan(const ShardMap& old_map, const ShardMap& new_map, absl::Time due, uint64_t* next_request_id);

  // Calls send(request) for each that is due and not held; then it is due again after `timeout`.
  template <typename Sender>
  void SendDue(absl::Time now, absl::Duration timeout, Sender send) {
    for (Request& request : requests_) {
      if (request.answered || request.held || request.due > now) continue;
      send(request);
      request.due = now + timeout;
    }
  }
  absl::Time next_due() const;

 private:
  std::vector<Request> requests_;
  std::vector<uint32_t> moved_;
};

// Whether both maps put each shard on the same ps, and have the same ps.
bool SamePlacement(const ShardMap& a, const ShardMap& b);

}  // namespace lagrange

#endif  // WORKER_CORE_PS_EXCHANGE_H_

// The simulated processes: each core with the little that its shell would hold. Only the cluster's own files include
// it.

#ifndef TESTS_SIMULATION_NODES_H_
#define TESTS_SIMULATION_NODES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tests/simulation/cluster.h"

namespace lagrange::simulation {

// Short beside the runs' few seconds, long beside a message's milliseconds.
inline constexpr absl::Duration kWorkerLease = absl::Seconds(3);
inline constexpr absl::Duration kCallDeadline = absl::Seconds(1);
inline constexpr int64_t kVariableCount = 6;
inline constexpr int64_t kTrainRecords = 46;
inline constexpr int64_t kTestRecords = 20;

struct Cluster::Chief {
  // Null while it is dead.
  std::unique_ptr<ChiefCore> core;
  // What was committed: all that a restart finds.
  Durable durable;
  // Counts starts: what was on its way to an earlier life is dropped.
  int life = 0;
  bool done = false;
  absl::Status exit_status;
};

struct Cluster::Ps {
  struct Request {
    uint64_t worker_id = 0;
    RequestHeader header;
    uint64_t request_id = 0;
    bool is_pull = false;
  };

  int index = 0;
  uint64_t process_id = 0;
  uint64_t incarnation = 0;
  bool finished = false;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<StalenessChecker> staleness;
  std::vector<uint32_t> shards;
  RequestToken next_token = 1;
  std::map<RequestToken, Request> requests;
  // Planted::kNoDedupe.
  int64_t fresh_epoch = 1000;
};

struct Cluster::Worker {
  uint64_t id = 0;
  uint64_t process_id = 0;
  std::unique_ptr<StepLoop> loop;
  absl::Time paused_until = absl::InfinitePast();
  // Something was done to it: how it ends is not judged.
  bool faulted = false;
  ShardMap map;
  struct ParameterBuffer {
    std::map<uint32_t, ShardSnapshot> shards;
  };
  ParameterBuffer buffers[2];
  // Which buffer a pull's answer goes to.
  std::map<uint64_t, int> pull_buffers;
  // (ps, request id) that an answer may still come for.
  std::set<std::pair<int32_t, uint64_t>> outstanding;
};

}  // namespace lagrange::simulation

#endif  // TESTS_SIMULATION_NODES_H_

// What the chief keeps on disk: the records that its decisions depend on, and the whole that they add up to.
//
// The core emits records; the shell (chief/store.h, SQLite) commits all records of one call in one transaction before
// it sends any message of that call, and hands a Durable to the core at the next start. The schema of the ledger's file
// is these structs, a table each; columns have the fields' names. Plain values; caller synchronizes.

#ifndef CHIEF_CORE_RECORDS_H_
#define CHIEF_CORE_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

// The four fencing numbers and the cut: "term", "generation", "incarnation", "map_version", "cut". Each is committed
// before it is used and never falls. And "bad_pushes" (batches skipped so far) and "examples_per_lease" (as resolved
// with the data's size; a restored job takes its checkpoint's); and "run_id", which tells this run's checkpoints from
// another's of the same job, and never changes.
struct CounterRecord {
  std::string name;
  uint64_t value = 0;
};

enum class MemberState { kLive, kLeft, kEvicted };

struct MemberRecord {
  uint64_t incarnation = 0;
  Role role = ROLE_UNSPECIFIED;
  int32_t task_index = 0;
  uint64_t process_id = 0;
  std::string address;
  std::string host;
  MemberState state = MemberState::kLive;
  // Last sequence of AcquireWork answered, and of SetMembership sent: neither may be reused after a restart. The
  // second is reserved in blocks of 1024 to spare a commit for each.
  uint64_t membership_sequence_reserved = 0;
};

// A lease that has been given out at least once.
struct LeaseRecord {
  int64_t epoch = 0;
  int64_t lease = 0;
  // Incarnation of the holder, 0 when it is free again.
  uint64_t holder = 0;
  // AcquireWork's sequence that it was given under, and the start clock told with it (-1: none), so that a repeat after
  // a restart of the chief gets the same answer.
  uint64_t grant_sequence = 0;
  int64_t start_clock = -1;
  // All its batches are settled and every ps has answered Retire.
  bool retired = false;
};

enum class BatchState { kDone, kSkipped };

// A settled batch; what has no record is todo. Primary key (epoch, lease, batch).
struct BatchRecord {
  int64_t epoch = 0;
  int64_t lease = 0;
  int32_t batch = 0;
  BatchState state = BatchState::kDone;
  // Largest cut in the acknowledgements (done only).
  uint64_t cut = 0;
  // Who reported it.
  uint64_t incarnation = 0;
  int64_t example_count = 0;
  double loss_sum = 0;
  // Skipped only.
  std::string reason;
};

// One result of an evaluation task. Primary key (epoch, first_record).
struct EvaluationRecord {
  int64_t epoch = 0;
  int64_t first_record = 0;
  int64_t example_count = 0;
  int64_t correct_count = 0;
  double loss_sum = 0;
};

// An epoch whose batches are all settled; rewritten when evaluation and checkpoint come in.
struct EpochRecord {
  int64_t epoch = 0;
  // The cut at its end.
  uint64_t cut = 0;
  bool evaluated = false;
  bool checkpointed = false;
  EpochReport report;
};

enum class CheckpointState { kListed, kDeleted };

struct CheckpointRecord {
  uint64_t cut = 0;
  int64_t epoch = 0;
  // Directory of the manifest.
  std::string directory;
  CheckpointState state = CheckpointState::kListed;
};

struct ShardMapRecord {
  ShardMap map;
};

// The models' variables and the data's size, fixed by the first worker.
struct ModelRecord {
  std::vector<VariableSpec> variables;
  int64_t train_records = 0;
  int64_t test_records = 0;
};

// How the job ended, for every chief that is started on the state afterwards. kInvalidArgument: its input was wrong.
struct EndRecord {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string reason;
};

using Record = std::variant<CounterRecord, MemberRecord, LeaseRecord, BatchRecord, EvaluationRecord, EpochRecord,
                            CheckpointRecord, ShardMapRecord, ModelRecord, EndRecord>;

// All that was committed. Keys are the tables' primary keys. Batches and evaluations of complete epochs need not be
// loaded (epochs hold their sums).
struct Durable {
  JobSpec job;
  std::map<std::string, uint64_t> counters;
  std::map<uint64_t, MemberRecord> members;
  std::map<std::pair<int64_t, int64_t>, LeaseRecord> leases;
  std::map<std::tuple<int64_t, int64_t, int32_t>, BatchRecord> batches;
  std::map<std::pair<int64_t, int64_t>, EvaluationRecord> evaluations;
  std::map<int64_t, EpochRecord> epochs;
  std::map<uint64_t, CheckpointRecord> checkpoints;
  ShardMap map;
  bool has_model = false;
  ModelRecord model;
  bool ended = false;
  EndRecord end;

  // Folds a record in, as the next start would find it. The store's fake in the simulation is this.
  void Apply(const Record& record);
};

}  // namespace lagrange

#endif  // CHIEF_CORE_RECORDS_H_

// A small cluster around the real ChiefCore for scenario tests: ps and workers that follow the protocol in a few lines
// each, a virtual clock, and a chief that can die at any call and start again from what was committed.
//
// The ps check what must hold when a push arrives (its worker is in the table) and keep what was applied; it shares no
// code with the ledger. Single thread. Time moves by Run alone.

#ifndef CHIEF_CORE_CHIEF_SCENARIO_H_
#define CHIEF_CORE_CHIEF_SCENARIO_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "chief/core/chief.h"

namespace lagrange {

using Key = std::tuple<int64_t, int64_t, int32_t>;

struct ScenarioPs {
  uint64_t process_id = 0;
  uint64_t incarnation = 0;
  bool alive = true;
  bool exited = false;
  std::string shutdown_reason;
  bool installed = false;
  uint64_t cut = 0;
  std::set<uint64_t> forks;
  int64_t installs = 0;
  std::set<std::pair<int64_t, int64_t>> retired;
  // Each push that counted here; a repeat of a key does not.
  std::set<Key> applied;
  int64_t duplicates = 0;
  struct Entry {
    uint64_t sequence = 0;
    MemberChange::State state = MemberChange::STATE_UNSPECIFIED;
    int64_t clock = 0;
  };
  std::map<uint64_t, Entry> table;
  absl::Time next_heartbeat;
};

struct ScenarioWorker {
  uint64_t process_id = 0;
  uint64_t incarnation = 0;
  uint64_t gave_up = 0;
  int32_t task_index = -1;
  // A dead or hung process: takes no turn.
  bool alive = true;
  bool exited = false;
  uint64_t sequence = 0;
  bool asking = false;
  int64_t clock = 0;
  std::deque<BatchKey> todo;
  std::vector<BatchDone> unreported;
  std::optional<EvaluationTask> evaluation;
  // The order in which this worker was granted leases.
  std::vector<std::pair<int64_t, int64_t>> grants;
  std::vector<EvaluationTask> evaluations;
  std::optional<int64_t> last_start_clock;
  Directive last_directive = CONTINUE;
  absl::Time next_heartbeat;
};

class Scenario {
 public:
  // 2 ps, 2 workers, 2 epochs of 40 records in 5 leases of 2 batches, 10 test records in 3 tasks, max_to_keep 1.
  static ChiefOptions DefaultOptions();
  static constexpr int64_t kTrainRecords = 40;
  static constexpr int64_t kTestRecords = 10;

  explicit Scenario(const ChiefOptions& options = DefaultOptions());

  // ---- driving ----
  // Turns of 10 ms until the condition holds; false when it doesn't within max_turns.
  bool RunUntil(const std::function<bool()>& condition, int max_turns = 5000);
  bool RunToExit(int max_turns = 20000) {
    return RunUntil([this] { return exit_status.has_value(); }, max_turns);
  }
  void Turn();
  void AddWorker();
  // The chief dies now and starts again from what is committed.
  void RestartChief();
  // Registers by hand; the effects are taken care of.
  RegisterResponse Register(const RegisterRequest& request);
  AcquireWorkResponse Acquire(const AcquireWorkRequest& request);
  ReportBatchesResponse Report(const ReportBatchesRequest& request);
  void Leave(const LeaveRequest& request);
  HeartbeatResponse Heartbeat(const HeartbeatRequest& request);
  JobStatus Status() const { return chief_->GetStatus(now); }
  RegisterRequest PsRequest(uint64_t process_id) const;
  RegisterRequest WorkerRequest(uint64_t process_id) const;

  // ---- where the chief dies ----
  enum class Crash { kBeforeCommit, kBeforeSending, kAfterSending };
  // At this call to the chief, counted from 0; -1 never.
  int64_t crash_at_call = -1;
  Crash crash = Crash::kBeforeCommit;
  int64_t calls = 0;

  // ---- the cluster ----
  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  ChiefOptions options;
  Durable durable;
  std::vector<ScenarioPs> ps;
  std::vector<ScenarioWorker> workers;
  // Answers that ps give instead of obeying, for tests of failures. Null: obey.
  std::function<std::optional<absl::Status>(int32_t ps_index, const PsCommand&)> ps_fault;
  bool hold_ps_answers = false;
  bool hold_manifests = false;

  // ---- what happened ----
  std::optional<absl::Status> exit_status;
  std::vector<std::string> progress;
  std::vector<std::string> deleted;
  std::vector<CheckpointManifest> manifests;
  // Every command that reached a ps.
  std::vector<std::pair<int32_t, PsCommand>> commands;
  // What must never happen; empty at the end of every good run.
  std::vector<std::string> violations;

  ChiefCore* chief() { return chief_.get(); }

 private:
  // Calls the chief; nothing when the answer was lost in a crash.
  template <typename Function>
  auto Call(Function function) -> std::optional<decltype(function(std::declval<ChiefEffects*>()))>;
  void Commit(const ChiefEffects& effects);
  void Dispatch(const ChiefEffects& effects);
  void StartChief();
  PsCommandResult Obey(int32_t ps_index, const PsCommand& command);
  void DeliverCommands();
  void PsTurn(int32_t index);
  void WorkerTurn(ScenarioWorker* worker);
  void RegisterWorker(ScenarioWorker* worker);
  void AskForWork(ScenarioWorker* worker);
  void ComputeOne(ScenarioWorker* worker);
  void ReportDone(ScenarioWorker* worker);
  void ReportEvaluation(ScenarioWorker* worker);
  void TakeDirective(ScenarioWorker* worker, Directive directive);

  std::unique_ptr<ChiefCore> chief_;
  std::deque<OutgoingPsCommand> network_;
  std::deque<WriteManifestAction> manifests_to_write_;
};

// What every complete run of the default job must come to, whatever happened on the way. Empty when all holds.
std::vector<std::string> FaultsOfCompleteRun(const Scenario& scenario);

}  // namespace lagrange

#endif  // CHIEF_CORE_CHIEF_SCENARIO_H_

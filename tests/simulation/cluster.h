// A whole cluster in one thread under a seed: the daemons' own cores, a virtual clock, a network with faults.
//
// The simulated shells do what the real ones do (translate, queue, time) and decide nothing. Every message takes a
// random time, so that messages overtake one another; faults come on top (faults.h). Equal options give the same run,
// event by event. Caller synchronizes; owns everything it simulates; opens no file or socket.

#ifndef TESTS_SIMULATION_CLUSTER_H_
#define TESTS_SIMULATION_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "chief/core/chief.h"
#include "common/batch_cutter.h"
#include "ps/core/engine.h"
#include "tests/simulation/checkers.h"
#include "tests/simulation/faults.h"
#include "worker/core/step_loop.h"

namespace lagrange::simulation {

// Bugs that a run can be given, to prove that its checkers see them.
enum class Planted {
  kNone,
  // A ps forgets what it has applied: every push comes under a fresh key.
  kNoDedupe,
  // A ps acknowledges a push whose last part it dropped.
  kLostPart,
  // A ps runs asp where the job says ssp.
  kNoBound,
  // A ps never hears of evictions.
  kNoEviction,
  // A ps writes its live state instead of the cut's fork.
  kLiveFork,
};

struct ClusterOptions {
  uint64_t seed = 0;
  int ps_count = 2;
  int worker_count = 3;
  int64_t epochs = 2;
  // "asp", "bsp" or "ssp:N".
  std::string consistency = "asp";
  // Without faults a run must also pass, and it is how liveness bounds were chosen.
  bool faults = true;
  Planted planted = Planted::kNone;
  // Prints what happens, for the replay of one seed.
  bool trace = false;
};

struct RunResult {
  absl::Status status;
  FaultCounts faults = {};
  int64_t events = 0;
  absl::Duration duration;
  int64_t largest_staleness_clocks = 0;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  RunResult Run();

 private:
  struct Ps;
  struct Worker;
  struct Chief;
  using Action = std::function<void()>;

  // ---- time and network (cluster.cc) ----
  void At(absl::Time when, Action action);
  void After(absl::Duration delay, Action action) { At(now_ + delay, std::move(action)); }
  // Counts and answers whether the fault happens now.
  bool Strikes(Fault fault, double probability);
  absl::Duration NetworkDelay();
  // A data path message: lost, late, twice, or plainly on its way.
  void Deliver(Action action);
  // A unary call: `carry_out` runs at the callee and gives what then happens at the caller, or nothing when the callee
  // is away. `failed` runs at the caller at its deadline when call or answer don't arrive.
  void Call(absl::Duration deadline, std::function<std::optional<Action>()> carry_out, Action failed);
  void RunTicks();
  absl::Time NextTick() const;
  void Fail(const absl::Status& status);
  // "  12.345s worker 3: ..." on stdout, when asked for.
  template <typename... Parts>
  void Trace(const Parts&... parts) const {
    if (options_.trace) PrintTrace(absl::StrCat(parts...));
  }
  void PrintTrace(const std::string& text) const;
  absl::Status CheckEnd() const;

  // ---- chief (chief_node.cc) ----
  void StartChief();
  void CrashChief();
  void ApplyChiefEffects(ChiefEffects* effects);
  void RunChiefAction(const ChiefAction& action);
  void SendPsCommand(const OutgoingPsCommand& command);

  // ---- ps (ps_node.cc) ----
  void StartPs(int index);
  void RegisterPs(int index);
  void BeatPs(int index);
  absl::StatusOr<PsCommandResult> ExecuteOnPs(int index, const PsCommand& command);
  void PullAtPs(uint64_t worker_id, const SendPull& pull);
  void PushAtPs(uint64_t worker_id, const SendPush& push, const std::vector<uint64_t>& versions);
  void ApplyPsEffects(int index, const PsEffects& effects);
  void LookAtShards(int index);
  // As LookAtShards, but with odd seeds only now and then: looking makes a shard fork that would have forked later, and
  // such forks have to be right too.
  void CheckShards(int index);

  // ---- workers (worker_node.cc) ----
  void StartWorker();
  void ScheduleProcessFaults();
  // A living worker by chance, or null.
  Worker* PickWorker();
  void CrashWorker();
  void PauseWorker();
  void StopWorker();
  void RemoveWorker(uint64_t worker_id);
  // Another process, after a while, unless the job has ended by then.
  void ReplaceWorker();
  // Runs an event on a worker (later, while it is paused; never, once it is gone), then what it asks for.
  void OnWorker(uint64_t worker_id, std::function<void(StepLoop*, WorkerEffects*)> event);
  void RunWorkerEffect(Worker* worker, const WorkerEffect& effect);
  void RunChiefCall(Worker* worker, const WorkerEffect& effect);
  void FailChiefCall(uint64_t worker_id, uint64_t call_id, const std::string& why);
  void LeaveChief(uint64_t worker_id, const CallLeave& leave);
  void Compute(Worker* worker, const StartCompute& compute);
  void Evaluate(Worker* worker, const StartEvaluation& evaluation);
  void RegisterWorker(Worker* worker, uint64_t call_id);
  void SendPullToPs(Worker* worker, const SendPull& pull);
  void SendPushToPs(Worker* worker, const SendPush& push);
  void ReportBatches(Worker* worker, const CallReportBatches& call);
  void OnExit(Worker* worker, const absl::Status& status);
  // A call to the chief's core whose answer goes back to the worker under call_id.
  template <typename Response>
  void CallChief(uint64_t worker_id, uint64_t call_id, std::function<Response(ChiefCore*, ChiefEffects*)> call,
                 void (StepLoop::*answer)(uint64_t, const Response&, absl::Time, WorkerEffects*));

  const ClusterOptions options_;
  Chance chance_;
  JobSpec job_;
  std::unique_ptr<BatchCutter> cutter_;
  BatchNumbering numbering_;
  absl::Time now_;
  absl::Time faults_end_;

  struct Event {
    absl::Time when;
    uint64_t sequence;
    Action action;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.when, a.sequence) > std::tie(b.when, b.sequence);
    }
  };
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  uint64_t next_sequence_ = 0;

  std::unique_ptr<Chief> chief_;
  std::vector<std::unique_ptr<Ps>> ps_;
  std::map<uint64_t, std::unique_ptr<Worker>> workers_;
  uint64_t next_worker_id_ = 1;

  std::unique_ptr<AppliedOnceChecker> applied_once_;
  std::unique_ptr<CutChecker> cuts_;
  WaitChecker waits_;
  RunResult result_;
};

}  // namespace lagrange::simulation

#endif  // TESTS_SIMULATION_CLUSTER_H_

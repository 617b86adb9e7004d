// The state machine behind ChiefCore (chief.h has the contract). Private to chief/core: its parts are in chief.cc
// (start and restart), chief_registration.cc, chief_members.cc (heartbeats, lapses, the end), chief_work.cc (leases,
// evaluations, reports), chief_epochs.cc (loading, epochs, cuts, checkpoints) and chief_status.cc.
//
// Every call ends in Advance, which takes all steps that have become possible. Caller synchronizes.

#ifndef CHIEF_CORE_CHIEF_MACHINE_H_
#define CHIEF_CORE_CHIEF_MACHINE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chief/core/checkpoint_plan.h"
#include "chief/core/chief.h"
#include "chief/core/clock_tables.h"
#include "chief/core/evaluation.h"
#include "chief/core/ledger.h"
#include "chief/core/membership.h"
#include "chief/core/ps_commands.h"
#include "chief/core/retirement.h"

namespace lagrange {

class ChiefMachine final : public ChiefCore {
 public:
  // The call being answered.
  struct Turn {
    absl::Time now;
    ChiefEffects* effects;
  };

  ChiefMachine(const ChiefOptions& options, const Durable& durable, absl::Time now);
  // Second half of the construction: may fail, and has effects.
  absl::Status Begin(const Durable& durable, Turn turn);

  RegisterResponse Register(const RegisterRequest& request, absl::Time now, ChiefEffects* effects) override;
  HeartbeatResponse Heartbeat(const HeartbeatRequest& request, absl::Time now, ChiefEffects* effects) override;
  AcquireWorkResponse AcquireWork(const AcquireWorkRequest& request, absl::Time now, ChiefEffects* effects) override;
  ReportBatchesResponse ReportBatches(const ReportBatchesRequest& request, absl::Time now,
                                      ChiefEffects* effects) override;
  ReportEvaluationResponse ReportEvaluation(const ReportEvaluationRequest& request, absl::Time now,
                                            ChiefEffects* effects) override;
  void Leave(const LeaveRequest& request, absl::Time now, ChiefEffects* effects) override;
  JobStatus GetStatus(absl::Time now) const override;
  void OnPsResult(uint64_t command_id, const absl::StatusOr<PsCommandResult>& result, absl::Time now,
                  ChiefEffects* effects) override;
  void OnManifestWritten(uint64_t cut, const absl::Status& status, absl::Time now, ChiefEffects* effects) override;
  void Tick(absl::Time now, ChiefEffects* effects) override;
  absl::Time next_tick() const override;
  void RequestStop(absl::Time now, ChiefEffects* effects) override;

 private:
  enum class Phase { kWaiting, kLoading, kTraining };
  enum class Answer { kNone, kLease, kEvaluation };

  // What a worker asked for last.
  struct Work {
    uint64_t sequence = 0;
    bool ahead = false;
    // What this sequence was answered with; kNone while it is told to ask again.
    Answer answer = Answer::kNone;
    // The next grant tells the clock of the last join.
    bool tell_start_clock = false;
    // Since when it has been without work though batches of its leases are todo.
    absl::Time idle_since = absl::InfiniteFuture();
  };

  struct Closing {
    uint64_t cut = 0;
    std::set<int32_t> waiting;
    StalenessStatistics staleness;
  };

  // ---- chief.cc ----
  void SetCounter(const std::string& name, uint64_t value, Turn turn);
  uint64_t Counter(const std::string& name) const;
  absl::Status BeginFromRestore(Turn turn);
  // The model and the data's size are known.
  absl::Status UseModel(const ModelRecord& model);
  void ResumeTraining(const Durable& durable, Turn turn);
  void TellTablesAgain(Turn turn);

  // ---- chief_registration.cc ----
  void HandleRegister(const RegisterRequest& request, Turn turn, RegisterResponse* response);
  absl::Status CheckCaller(const RegisterRequest& request) const;
  // True when the response is complete: the process has to show something first.
  bool AskForProof(const RegisterRequest& request, RegisterResponse* response) const;
  absl::Status CheckModel(const RegisterRequest& request) const;
  // Of the first worker: fixes the model.
  absl::Status AdoptModel(const RegisterRequest& request, Turn turn);
  void GiveSeat(const RegisterRequest& request, Turn turn, RegisterResponse* response);
  void Accept(const Member& member, RegisterResponse* response) const;

  // ---- chief_members.cc ----
  void Remove(uint64_t incarnation, MemberState state, const std::string& why, Turn turn);
  void TakeLapsed(Turn turn);
  // What members are told now.
  Directive CurrentDirective() const;
  // Recorded. InvalidArgument alone says that the job's input is at fault.
  void Fail(const absl::Status& status, Turn turn);
  // The part of Fail that is for this process and its members.
  void Announce(const absl::Status& status, Turn turn);
  void End(const absl::Status& status, Turn turn);
  void SendShutDown(Turn turn);
  void AdvanceFarewell(Turn turn);
  void Progress(std::string line, Turn turn) const;

  // ---- chief_work.cc ----
  void HandleAcquire(const AcquireWorkRequest& request, Turn turn, AcquireWorkResponse* response);
  bool RepeatAnswer(uint64_t incarnation, const Work& work, AcquireWorkResponse* response) const;
  void FindWork(Member* worker, Work* work, Turn turn, AcquireWorkResponse* response);
  void Grant(uint64_t incarnation, int64_t start_clock, Turn turn);
  void JoinAll(const std::vector<uint64_t>& incarnations, Turn turn);
  void ParkWorker(Member* worker, Turn turn);
  void TellTables(const SetMembership& command, Turn turn);
  void TakeBackUnreported(uint64_t incarnation, Work* work, Turn turn);
  bool IsBsp() const { return job_.consistency().has_bsp(); }
  // bsp: everybody waits for the common start of a run of rounds.
  bool AtGate() const { return IsBsp() && tables_->AllOut(); }
  void AdvanceGate(Turn turn);
  void CountBadPush(const std::string& reason, Turn turn);
  void OnJoined(int32_t ps_index, const SetMembership& command, const PsCommandResult& result, Turn turn);

  // ---- chief_epochs.cc ----
  void Advance(Turn turn);
  void StartLoading(Turn turn);
  void SendInstall(Turn turn);
  void SendToAll(const PsCommand& command, Turn turn);
  void HandlePsResult(const OutgoingPsCommand& sent, const PsCommandResult& result, Turn turn);
  void SendRetires(Turn turn);
  void OpenNextEpoch(Turn turn);
  void StartClosing(Turn turn);
  void FinishEpoch(Turn turn);
  EpochReport ReportOfEpoch(absl::Time now) const;
  bool IsDue(int32_t every_epochs, int64_t epoch) const;
  void StartFollowUps(const EpochRecord& record, const std::vector<EvaluationRecord>& results, Turn turn);
  void AdvanceFollowUps(Turn turn);
  void CloseEvaluation(EpochRecord* record, Turn turn);
  CheckpointManifest ManifestOf(uint64_t cut) const;

  // ---- chief_status.cc ----
  JobReport MakeReport() const;
  StalenessStatistics StalenessOfPs() const;
  int64_t BadPushes() const;
  std::string PhaseName() const;

  const ChiefOptions options_;
  // options_.job with the lease's size resolved: what is given out.
  JobSpec job_;
  const std::string job_digest_;
  const absl::Time started_;
  Phase phase_ = Phase::kWaiting;
  // A restart while the ps were loading.
  bool tell_tables_when_loaded_ = false;
  std::map<std::string, uint64_t> counters_;
  Membership membership_;
  // Gone members, for status; bounded.
  std::map<uint64_t, MemberRecord> gone_;
  std::optional<ModelRecord> model_;
  ShardMap map_;
  std::optional<PsCommands> commands_;
  // Set with the model.
  std::optional<Ledger> ledger_;
  std::optional<Evaluation> evaluation_;
  std::optional<ClockTables> tables_;
  std::optional<Retirement> retirement_;
  std::optional<CheckpointPlan> plan_;
  std::map<uint64_t, Work> work_;
  // bsp: workers that join together and have no grant yet.
  std::set<uint64_t> gate_;
  // ps that have yet to load.
  std::set<int32_t> installing_;
  bool epoch_is_open_ = false;
  absl::Time epoch_started_;
  int64_t examples_before_start_ = 0;
  std::optional<Closing> closing_;
  std::map<int64_t, EpochRecord> epochs_;
  // Of epochs_: not yet evaluated and checkpointed.
  std::set<int64_t> following_up_;
  StalenessStatistics staleness_of_epochs_;
  // Whether staleness_of_epochs_ has all epochs: not after a restart.
  bool staleness_is_whole_ = true;
  int64_t failed_evaluations_ = 0;
  absl::Time last_tick_;
  absl::Time no_workers_since_;

  // ---- the end ----
  bool stopped_ = false;
  bool ended_ = false;
  bool exited_ = false;
  absl::Status end_status_;
  absl::Time farewell_deadline_ = absl::InfiniteFuture();
  bool shutting_down_ = false;
  std::set<int32_t> shutdown_waiting_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_CHIEF_MACHINE_H_

// The decisions of the chief: who is a member, who computes which batches, when an epoch, a cut, the job ends.
//
// For the daemon (chief/chief_service.h) and the simulation, which both drive this very class. A state machine: each
// call takes a message and the time and returns the answer and what has to be done; it owns no thread, socket, clock or
// file. Caller synchronizes. Composed of Membership, Ledger, Evaluation and CheckpointPlan (headers beside this one).
//
// Rules for the shell, in this order: commit effects.records in one transaction; then send effects.ps_commands and the
// call's own answer; then do effects.actions, each of which comes back through On...(). A message whose records
// can't be committed must not be sent: the process ends instead.
//
// Timers: call Tick at the latest at next_tick(). Retries of ps commands are Tick's.

#ifndef CHIEF_CORE_CHIEF_H_
#define CHIEF_CORE_CHIEF_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "chief/core/records.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

struct ChiefOptions {
  // Defaults filled in and validated (common/job_config.h).
  JobSpec job;
  // Set for a job that starts from a checkpoint: its directory and manifest, verified by the shell.
  std::optional<RestoreSource> restore;
  // A number that no other run has, for the names of its checkpoints. Used at the first start; a restart keeps the
  // committed one.
  uint64_t run_id = 0;
  std::string checkpoint_directory;
  std::string directory_token_file;
  std::string directory_token;
  // From the start until all declared ps and workers have registered.
  absl::Duration startup_timeout = absl::Minutes(5);
  absl::Duration heartbeat_interval = absl::Seconds(1);
  // A ps command without an answer is sent again after this.
  absl::Duration command_timeout = absl::Seconds(2);
  // WriteCheckpoint and InstallShards move gigabytes.
  absl::Duration disk_command_timeout = absl::Minutes(10);
  // Workers are told to ask for work again after this.
  absl::Duration retry_after = absl::Milliseconds(10);
  // Once the job has ended, how long members get to hear it.
  absl::Duration farewell_timeout = absl::Seconds(10);
};

struct OutgoingPsCommand {
  int32_t ps_index = 0;
  std::string address;
  // Echo it to OnPsResult. A resend has the same id.
  uint64_t command_id = 0;
  absl::Duration deadline;
  PsCommand command;
};

// Write manifest.json of a checkpoint (atomically: temporary name, sync, rename, sync the directory).
struct WriteManifestAction {
  uint64_t cut = 0;
  std::string directory;
  CheckpointManifest manifest;
};

// Delete a checkpoint: its manifest first, then its files. Nothing comes back.
struct DeleteCheckpointAction {
  std::string directory;
};

// The process may end now. Nothing comes back.
struct ExitAction {
  // OK, or why the job failed; InvalidArgument: its input is at fault. A restarted chief tells the same.
  absl::Status status;
};

// A line for people ("epoch 3 of 10: ..."), and for `lagrange local` to show.
struct ProgressAction {
  std::string line;
};

using ChiefAction = std::variant<WriteManifestAction, DeleteCheckpointAction, ExitAction, ProgressAction>;

struct ChiefEffects {
  std::vector<Record> records;
  std::vector<OutgoingPsCommand> ps_commands;
  std::vector<ChiefAction> actions;
};

class ChiefCore {
 public:
  virtual ~ChiefCore() = default;

  virtual RegisterResponse Register(const RegisterRequest& request, absl::Time now, ChiefEffects* effects) = 0;
  virtual HeartbeatResponse Heartbeat(const HeartbeatRequest& request, absl::Time now, ChiefEffects* effects) = 0;
  virtual AcquireWorkResponse AcquireWork(const AcquireWorkRequest& request, absl::Time now, ChiefEffects* effects) = 0;
  virtual ReportBatchesResponse ReportBatches(const ReportBatchesRequest& request, absl::Time now,
                                              ChiefEffects* effects) = 0;
  virtual ReportEvaluationResponse ReportEvaluation(const ReportEvaluationRequest& request, absl::Time now,
                                                    ChiefEffects* effects) = 0;
  virtual void Leave(const LeaveRequest& request, absl::Time now, ChiefEffects* effects) = 0;
  virtual JobStatus GetStatus(absl::Time now) const = 0;

  // The answer to a ps command, or its failure (DeadlineExceeded, Unavailable: sent again later).
  virtual void OnPsResult(uint64_t command_id, const absl::StatusOr<PsCommandResult>& result, absl::Time now,
                          ChiefEffects* effects) = 0;
  virtual void OnManifestWritten(uint64_t cut, const absl::Status& status, absl::Time now, ChiefEffects* effects) = 0;
  virtual void Tick(absl::Time now, ChiefEffects* effects) = 0;
  virtual absl::Time next_tick() const = 0;

  // SIGTERM to the chief: this process ends (ExitAction, Cancelled) with its state kept, and a chief started on that
  // state goes on; members wait for it. Afterwards calls are still answered, but nothing is begun.
  virtual void RequestStop(absl::Time now, ChiefEffects* effects) = 0;
};

// `durable` is empty (but for the job) at the first start. The first effects (the new term) are in `effects`.
// FailedPrecondition: the state is of another job (both digests named), or placed on another number of ps or under
// another consistency; or the restore's manifest doesn't fit the job.
absl::StatusOr<std::unique_ptr<ChiefCore>> NewChiefCore(const ChiefOptions& options, const Durable& durable,
                                                        absl::Time now, ChiefEffects* effects);

}  // namespace lagrange

#endif  // CHIEF_CORE_CHIEF_H_

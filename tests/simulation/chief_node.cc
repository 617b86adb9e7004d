// The chief's simulated shell: commit, then send, then act; and its death and return.

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/nodes.h"

namespace lagrange::simulation {

void Cluster::StartChief() {
  ChiefOptions options;
  options.job = job_;
  options.checkpoint_directory = "/checkpoints";
  options.directory_token_file = "token";
  options.directory_token = "token";
  options.startup_timeout = absl::Minutes(2);
  options.heartbeat_interval = absl::Milliseconds(500);
  options.command_timeout = kCallDeadline;
  options.disk_command_timeout = absl::Seconds(5);
  options.retry_after = absl::Milliseconds(50);
  options.farewell_timeout = absl::Seconds(8);
  ChiefEffects effects;
  absl::StatusOr<std::unique_ptr<ChiefCore>> core = NewChiefCore(options, chief_->durable, now_, &effects);
  if (!core.ok()) return Fail(core.status());
  chief_->core = *std::move(core);
  ++chief_->life;
  ApplyChiefEffects(&effects);
}

void Cluster::CrashChief() {
  if (chief_->core == nullptr || chief_->done) return;
  ++result_.faults[static_cast<int>(Fault::kChiefCrash)];
  Trace("fault: the chief dies");
  chief_->core = nullptr;
  After(absl::Milliseconds(100 + chance_.Below(2500)), [this] {
    StartChief();
    waits_.OnChiefBack(now_);
  });
}

void Cluster::ApplyChiefEffects(ChiefEffects* effects) {
  for (const Record& record : effects->records) chief_->durable.Apply(record);
  for (const OutgoingPsCommand& command : effects->ps_commands) SendPsCommand(command);
  for (const ChiefAction& action : effects->actions) RunChiefAction(action);
}

void Cluster::RunChiefAction(const ChiefAction& action) {
  if (const auto* manifest = std::get_if<WriteManifestAction>(&action)) {
    Fail(cuts_->OnManifest(manifest->manifest, kVariableCount));
    const uint64_t cut = manifest->cut;
    const int life = chief_->life;
    After(absl::Milliseconds(1 + chance_.Below(20)), [this, cut, life] {
      if (chief_->core == nullptr || chief_->life != life) return;
      ChiefEffects effects;
      chief_->core->OnManifestWritten(cut, absl::OkStatus(), now_, &effects);
      ApplyChiefEffects(&effects);
    });
  } else if (const auto* progress = std::get_if<ProgressAction>(&action)) {
    Trace("chief: ", progress->line);
  } else if (const auto* exit = std::get_if<ExitAction>(&action)) {
    chief_->done = true;
    chief_->exit_status = exit->status;
    // Its process is gone: no call reaches it any more. Not destroyed here, in the middle of a call into it.
    After(absl::ZeroDuration(), [this] { chief_->core = nullptr; });
  }
}

void Cluster::SendPsCommand(const OutgoingPsCommand& outgoing) {
  const int life = chief_->life;
  const auto answer = [this, life, id = outgoing.command_id](absl::StatusOr<PsCommandResult> result) {
    if (chief_->core == nullptr || chief_->life != life) return;
    ChiefEffects effects;
    chief_->core->OnPsResult(id, result, now_, &effects);
    ApplyChiefEffects(&effects);
  };
  Call(
      outgoing.deadline,
      [this, outgoing, answer]() -> std::optional<Action> {
        if (ps_[outgoing.ps_index]->finished) return std::nullopt;
        absl::StatusOr<PsCommandResult> result = ExecuteOnPs(outgoing.ps_index, outgoing.command);
        Trace("ps ", outgoing.ps_index, ": command ", outgoing.command_id, " ",
              outgoing.command.ShortDebugString().substr(0, 160), " -> ", result.status().ToString());
        return [answer, result] { answer(result); };
      },
      [answer] { answer(absl::DeadlineExceededError("no answer")); });
}

}  // namespace lagrange::simulation

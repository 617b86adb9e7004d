// The course of the job: loading, epochs, cuts, and what follows each epoch. Advance is the heart of it.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "chief/core/chief_machine.h"
#include "common/partition.h"
#include "common/status.h"
#include "common/version.h"
#include "proto/staleness_statistics.h"

namespace lagrange {
namespace {

// Epochs that may wait for evaluation or checkpoint while the next one trains: each costs a fork on every ps.
constexpr size_t kMaxFollowingUp = 2;

// What a ps or the disk calls an invalid argument is a fault of ours, not of the job's input.
absl::Status NotOfInput(const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? absl::InternalError(status.message()) : status;
}

}  // namespace

void ChiefMachine::Advance(Turn turn) {
  if (stopped_ || exited_) return;
  if (ended_) return AdvanceFarewell(turn);
  if (phase_ == Phase::kWaiting && membership_.Missing().empty() && ledger_.has_value()) StartLoading(turn);
  if (phase_ == Phase::kLoading && installing_.empty()) {
    phase_ = Phase::kTraining;
    Progress("training begins", turn);
    if (tell_tables_when_loaded_) TellTablesAgain(turn);
  }
  if (phase_ != Phase::kTraining) return;
  SendRetires(turn);
  if (epoch_is_open_ && !closing_.has_value() && ledger_->AllRetired()) StartClosing(turn);
  if (closing_.has_value() && closing_->waiting.empty()) FinishEpoch(turn);
  if (ended_) return AdvanceFarewell(turn);
  AdvanceFollowUps(turn);
  const int64_t epochs_complete = static_cast<int64_t>(epochs_.size());
  if (!epoch_is_open_ && epochs_complete < job_.epochs() && following_up_.size() < kMaxFollowingUp) OpenNextEpoch(turn);
  if (epochs_complete >= job_.epochs() && following_up_.empty()) {
    turn.effects->records.push_back(EndRecord{absl::StatusCode::kOk, ""});
    Progress(absl::StrCat("the job is complete after ", epochs_complete, " epochs"), turn);
    End(absl::OkStatus(), turn);
    return AdvanceFarewell(turn);
  }
  if (IsBsp()) AdvanceGate(turn);
}

void ChiefMachine::StartLoading(Turn turn) {
  auto shards = CutIntoShards(model_->variables, job_.cluster().shard_bytes());
  if (!shards.ok()) return Fail(shards.status(), turn);
  PlaceShards(job_.cluster().ps_count(), &*shards);
  SetCounter("map_version", Counter("map_version") + 1, turn);
  map_.Clear();
  map_.set_version(Counter("map_version"));
  map_.mutable_shards()->Assign(shards->begin(), shards->end());
  map_.mutable_variables()->Assign(model_->variables.begin(), model_->variables.end());
  for (const uint64_t incarnation : membership_.ByIndex(PS)) {
    const MemberRecord& record = membership_.Find(incarnation)->record;
    PsAddress* ps = map_.add_ps();
    ps->set_ps_index(record.task_index);
    ps->set_address(record.address);
    ps->set_incarnation(incarnation);
  }
  turn.effects->records.push_back(ShardMapRecord{map_});
  phase_ = Phase::kLoading;
  Progress(
      absl::StrFormat("all registered: %d ps, %d workers; %d shards of %d variables, %d train records in %d leases",
                      map_.ps_size(), membership_.LiveCount(WORKER), map_.shards_size(), map_.variables_size(),
                      model_->train_records, ledger_->cutter().lease_count()),
      turn);
  SendInstall(turn);
}

void ChiefMachine::SendInstall(Turn turn) {
  PsCommand command;
  InstallShards* install = command.mutable_install_shards();
  *install->mutable_map() = map_;
  *install->mutable_job() = job_;
  install->set_leases_per_epoch(ledger_->cutter().lease_count());
  install->set_batches_per_lease(ledger_->cutter().batches_per_lease());
  install->set_cut(Counter("cut"));
  if (options_.restore.has_value()) *install->mutable_restore() = *options_.restore;
  for (const PsAddress& ps : map_.ps()) installing_.insert(ps.ps_index());
  SendToAll(command, turn);
}

void ChiefMachine::SendToAll(const PsCommand& command, Turn turn) {
  for (const PsAddress& ps : map_.ps()) commands_->Send(ps, command, turn.now, turn.effects);
}

void ChiefMachine::OnPsResult(uint64_t command_id, const absl::StatusOr<PsCommandResult>& result, absl::Time now,
                              ChiefEffects* effects) {
  const Turn turn{now, effects};
  const OutgoingPsCommand* outstanding = commands_->Find(command_id);
  // A repeat of an answer that was dealt with.
  if (outstanding == nullptr) return;
  if (!result.ok() && commands_->MayPass(command_id, result.status())) {
    return commands_->RetryLater(command_id, now);
  }
  const OutgoingPsCommand sent = *outstanding;
  commands_->Take(command_id);
  if (!result.ok() && !ended_) {
    Fail(NotOfInput(Annotate(result.status(), absl::StrCat("ps ", sent.ps_index, " at ", sent.address))), turn);
  } else {
    HandlePsResult(sent, result.ok() ? *result : PsCommandResult(), turn);
  }
  Advance(turn);
}

void ChiefMachine::HandlePsResult(const OutgoingPsCommand& sent, const PsCommandResult& result, Turn turn) {
  switch (sent.command.command_case()) {
    case PsCommand::kInstallShards:
      installing_.erase(sent.ps_index);
      return;
    case PsCommand::kSetMembership:
      return OnJoined(sent.ps_index, sent.command.set_membership(), result, turn);
    case PsCommand::kRetireLeases:
      for (const auto& [epoch, lease] : retirement_->Answered(sent.ps_index, sent.command.retire_leases())) {
        ledger_->Retire(epoch, lease, &turn.effects->records);
      }
      return;
    case PsCommand::kAnnounceCut:
      if (!closing_.has_value() || closing_->cut != sent.command.announce_cut().cut()) return;
      if (closing_->waiting.erase(sent.ps_index) > 0) MergeStaleness(result.staleness(), &closing_->staleness);
      return;
    case PsCommand::kWriteCheckpoint: {
      const uint64_t cut = sent.command.write_checkpoint().cut();
      if (plan_->FilesWritten(cut, sent.ps_index, result)) {
        WriteManifestAction action;
        action.cut = cut;
        action.directory = sent.command.write_checkpoint().directory();
        action.manifest = ManifestOf(cut);
        turn.effects->actions.push_back(std::move(action));
      }
      return;
    }
    case PsCommand::kShutDown:
      // A chief started on this state again need not look for it.
      if (const Member* ps = membership_.AtIndex(PS, sent.ps_index)) {
        Remove(ps->record.incarnation, MemberState::kLeft, "", turn);
      }
      return;
    case PsCommand::kReleaseCut:
    case PsCommand::COMMAND_NOT_SET:
      return;
  }
}

void ChiefMachine::SendRetires(Turn turn) {
  for (const RetireLeases::Lease& lease : ledger_->TakeSettled()) retirement_->Add(lease);
  for (const PsAddress& ps : map_.ps()) {
    PsCommand command;
    if (retirement_->NextFor(ps.ps_index(), command.mutable_retire_leases())) {
      commands_->Send(ps, std::move(command), turn.now, turn.effects);
    }
  }
}

void ChiefMachine::OpenNextEpoch(Turn turn) {
  ledger_->OpenEpoch(static_cast<int64_t>(epochs_.size()));
  epoch_is_open_ = true;
  epoch_started_ = turn.now;
  examples_before_start_ = 0;
}

void ChiefMachine::StartClosing(Turn turn) {
  SetCounter("cut", Counter("cut") + 1, turn);
  closing_ = Closing();
  closing_->cut = Counter("cut");
  PsCommand command;
  command.mutable_announce_cut()->set_cut(closing_->cut);
  command.mutable_announce_cut()->set_epoch(ledger_->epoch());
  for (const PsAddress& ps : map_.ps()) closing_->waiting.insert(ps.ps_index());
  SendToAll(command, turn);
}

EpochReport ChiefMachine::ReportOfEpoch(absl::Time now) const {
  EpochReport report;
  report.set_epoch(static_cast<int32_t>(ledger_->epoch() + 1));
  report.set_examples_done(ledger_->examples_done());
  report.set_examples_skipped(ledger_->examples_skipped());
  if (ledger_->examples_done() > 0) {
    report.set_training_loss(ledger_->loss_sum() / static_cast<double>(ledger_->examples_done()));
  }
  const double seconds = absl::ToDoubleSeconds(now - epoch_started_);
  report.set_seconds(seconds);
  const int64_t examples = ledger_->examples_done() + ledger_->examples_skipped() - examples_before_start_;
  if (seconds > 0) report.set_examples_per_second(static_cast<double>(examples) / seconds);
  report.set_staleness_mean(MeanStaleness(closing_->staleness));
  report.set_staleness_p99(StalenessPercentile(closing_->staleness, 0.99));
  report.set_staleness_clocks_max(static_cast<int32_t>(std::min<int64_t>(closing_->staleness.clocks_max(), INT32_MAX)));
  return report;
}

bool ChiefMachine::IsDue(int32_t every_epochs, int64_t epoch) const {
  return epoch + 1 >= job_.epochs() || (epoch + 1) % std::max(1, every_epochs) == 0;
}

void ChiefMachine::FinishEpoch(Turn turn) {
  EpochRecord record;
  record.epoch = ledger_->epoch();
  record.cut = closing_->cut;
  record.report = ReportOfEpoch(turn.now);
  MergeStaleness(closing_->staleness, &staleness_of_epochs_);
  closing_.reset();
  epoch_is_open_ = false;
  const int64_t accounted = record.report.examples_done() + record.report.examples_skipped();
  if (accounted != model_->train_records) {
    return Fail(absl::InternalError(absl::StrCat(
                    "the account of epoch ", record.epoch + 1, " doesn't close: ", record.report.examples_done(),
                    " done + ", record.report.examples_skipped(), " skipped of ", model_->train_records, " examples")),
                turn);
  }
  record.evaluated = !evaluation_.has_value() || !IsDue(job_.evaluation().every_epochs(), record.epoch);
  record.checkpointed = !IsDue(job_.checkpoint().every_epochs(), record.epoch);
  epochs_[record.epoch] = record;
  turn.effects->records.push_back(record);
  const EpochReport& report = record.report;
  Progress(
      absl::StrFormat("epoch %d of %d: training loss %.4f, %.0f examples/s, staleness mean %.2f p99 %.0f versions, "
                      "at most %d clocks",
                      report.epoch(), job_.epochs(), report.training_loss(), report.examples_per_second(),
                      report.staleness_mean(), report.staleness_p99(), report.staleness_clocks_max()),
      turn);
  StartFollowUps(record, {}, turn);
}

void ChiefMachine::StartFollowUps(const EpochRecord& record, const std::vector<EvaluationRecord>& results, Turn turn) {
  following_up_.insert(record.epoch);
  if (!record.evaluated && evaluation_.has_value()) {
    evaluation_->Open(record.epoch, record.cut, results);
    failed_evaluations_ = 0;
  }
  if (record.checkpointed) return;
  plan_->Begin(record.epoch, record.cut);
  for (const PsAddress& ps : map_.ps()) {
    PsCommand command;
    *command.mutable_write_checkpoint() = plan_->CommandFor(record.epoch, record.cut, ps.ps_index());
    commands_->Send(ps, std::move(command), turn.now, turn.effects);
  }
}

void ChiefMachine::AdvanceFollowUps(Turn turn) {
  for (const int64_t epoch : following_up_) {
    if (evaluation_.has_value() && evaluation_->IsComplete(epoch)) CloseEvaluation(&epochs_.at(epoch), turn);
  }
  // Releasing a cut frees the earlier ones too, so it waits for them.
  uint64_t released = 0;
  while (!following_up_.empty()) {
    const EpochRecord& record = epochs_.at(*following_up_.begin());
    if (!record.evaluated || !record.checkpointed) break;
    released = record.cut;
    following_up_.erase(following_up_.begin());
  }
  if (released == 0) return;
  PsCommand command;
  command.mutable_release_cut()->set_cut(released);
  SendToAll(command, turn);
}

void ChiefMachine::CloseEvaluation(EpochRecord* record, Turn turn) {
  const Evaluation::Sums sums = evaluation_->Close(record->epoch);
  record->evaluated = true;
  if (sums.example_count > 0) {
    const double count = static_cast<double>(sums.example_count);
    record->report.set_test_loss(sums.loss_sum / count);
    record->report.set_test_accuracy(static_cast<double>(sums.correct_count) / count);
  }
  turn.effects->records.push_back(*record);
  Progress(absl::StrFormat("epoch %d of %d: test loss %.4f, accuracy %.4f", record->report.epoch(), job_.epochs(),
                           record->report.test_loss(), record->report.test_accuracy()),
           turn);
}

CheckpointManifest ChiefMachine::ManifestOf(uint64_t cut) const {
  const int64_t epoch = plan_->EpochOf(cut);
  CheckpointManifest manifest;
  manifest.set_format_version(kCheckpointFormatVersion);
  manifest.set_build_version(kBuildVersion);
  manifest.set_job_name(job_.name());
  manifest.set_job_digest(job_digest_);
  manifest.set_model_digest(ModelDigest(model_->variables));
  manifest.set_cut(cut);
  manifest.set_generation(Counter("generation"));
  manifest.set_optimizer(OptimizerName(job_));
  CutLedger* ledger = manifest.mutable_ledger();
  ledger->set_epochs_complete(epoch + 1);
  ledger->set_leases_per_epoch(ledger_->cutter().lease_count());
  ledger->set_batch_size(job_.batch_size());
  ledger->set_examples_per_lease(ledger_->cutter().examples_per_lease());
  int64_t skipped = 0;
  for (const auto& [number, record] : epochs_) {
    if (number > epoch) break;
    skipped += record.report.examples_skipped();
    *ledger->add_epochs() = record.report;
  }
  ledger->set_examples_skipped(skipped);
  for (const VariableSpec& variable : model_->variables) {
    VariableEntry* entry = manifest.add_variables();
    entry->set_name(variable.name());
    *entry->mutable_shape() = variable.shape();
  }
  plan_->AddFiles(cut, &manifest);
  return manifest;
}

void ChiefMachine::OnManifestWritten(uint64_t cut, const absl::Status& status, absl::Time now, ChiefEffects* effects) {
  const Turn turn{now, effects};
  if (!plan_->IsBegun(cut)) return Advance(turn);
  if (!status.ok()) {
    Fail(NotOfInput(Annotate(status, absl::StrCat("checkpoint at cut ", cut))), turn);
    return Advance(turn);
  }
  const int64_t epoch = plan_->EpochOf(cut);
  const std::string directory = plan_->DirectoryOf(epoch, cut);
  for (const std::string& deleted : plan_->List(cut, &effects->records)) {
    effects->actions.push_back(DeleteCheckpointAction{deleted});
  }
  EpochRecord& record = epochs_.at(epoch);
  record.checkpointed = true;
  effects->records.push_back(record);
  Progress(absl::StrCat("checkpoint ", directory), turn);
  Advance(turn);
}

}  // namespace lagrange

#include "chief/core/chief.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "chief/core/chief_machine.h"
#include "common/job_config.h"
#include "common/status.h"

namespace lagrange {
namespace {

// Evicted incarnations that ps are told of again after a restart of the chief, and that status shows.
constexpr size_t kMaxGoneMembers = 1024;

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

Membership::Options MembershipOptions(const ChiefOptions& options) {
  Membership::Options membership;
  membership.ps_count = options.job.cluster().ps_count();
  membership.worker_count = options.job.cluster().worker_count();
  membership.heartbeat_interval = options.heartbeat_interval;
  membership.ps_lease = FromProto(options.job.cluster().ps_lease());
  membership.worker_lease = FromProto(options.job.cluster().worker_lease());
  return membership;
}

absl::Status CheckDurable(const ChiefOptions& options, const Durable& durable) {
  if (durable.counters.count("term") == 0) return absl::OkStatus();
  const std::string ours = JobDigest(options.job);
  const std::string theirs = JobDigest(durable.job);
  if (ours != theirs || options.job.name() != durable.job.name()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state directory is of another job: it holds \"", durable.job.name(), "\" with digest ",
                     theirs, ", the job file is \"", options.job.name(), "\" with digest ", ours));
  }
  if (durable.map.version() > 0 && durable.map.ps_size() != options.job.cluster().ps_count()) {
    return absl::FailedPreconditionError(absl::StrCat("the job in the state directory runs on ", durable.map.ps_size(),
                                                      " ps, cluster.ps_count is ", options.job.cluster().ps_count()));
  }
  // The ps and workers of a job that has been placed go on under the policy that they were given.
  const std::string our_policy = DescribeConsistency(options.job.consistency());
  const std::string their_policy = DescribeConsistency(durable.job.consistency());
  if (durable.map.version() > 0 && our_policy != their_policy) {
    return absl::FailedPreconditionError(absl::StrCat("the job in the state directory runs under ", their_policy,
                                                      ", the job given asks for consistency ", our_policy));
  }
  return absl::OkStatus();
}

}  // namespace

ChiefMachine::ChiefMachine(const ChiefOptions& options, const Durable& durable, absl::Time now)
    : options_(options),
      job_(options.job),
      job_digest_(JobDigest(options.job)),
      started_(now),
      counters_(durable.counters),
      membership_(MembershipOptions(options), durable.members, now),
      map_(durable.map),
      epoch_started_(now),
      epochs_(durable.epochs),
      last_tick_(now),
      no_workers_since_(now) {}

uint64_t ChiefMachine::Counter(const std::string& name) const {
  const auto found = counters_.find(name);
  return found == counters_.end() ? 0 : found->second;
}

void ChiefMachine::SetCounter(const std::string& name, uint64_t value, Turn turn) {
  counters_[name] = value;
  turn.effects->records.push_back(CounterRecord{name, value});
}

absl::Status ChiefMachine::Begin(const Durable& durable, Turn turn) {
  const bool first_start = Counter("term") == 0;
  SetCounter("term", Counter("term") + 1, turn);
  if (first_start) {
    SetCounter("generation", 1, turn);
    // 0 stands for no cut in messages.
    SetCounter("cut", 1, turn);
    SetCounter("run_id", options_.run_id, turn);
    if (options_.restore.has_value()) RETURN_IF_ERROR(BeginFromRestore(turn));
  }
  if (const uint64_t resolved = Counter("examples_per_lease"); resolved > 0) {
    job_.mutable_data()->set_examples_per_lease(static_cast<int64_t>(resolved));
  }
  PsCommands::Options command_options;
  command_options.term = Counter("term");
  command_options.generation = Counter("generation");
  command_options.command_timeout = options_.command_timeout;
  command_options.disk_command_timeout = options_.disk_command_timeout;
  commands_.emplace(command_options);
  CheckpointPlan::Options plan_options;
  plan_options.job_name = job_.name();
  plan_options.run_id = Counter("run_id");
  plan_options.directory = options_.checkpoint_directory;
  plan_options.ps_count = job_.cluster().ps_count();
  plan_options.max_to_keep = job_.checkpoint().max_to_keep();
  plan_.emplace(plan_options, durable.checkpoints);
  for (const std::string& directory : plan_->DeletionsToRepeat()) {
    turn.effects->actions.push_back(DeleteCheckpointAction{directory});
  }
  for (auto it = durable.members.rbegin(); it != durable.members.rend() && gone_.size() < kMaxGoneMembers; ++it) {
    if (it->second.state != MemberState::kLive) gone_[it->first] = it->second;
  }
  if (durable.has_model) RETURN_IF_ERROR(UseModel(durable.model));
  if (durable.ended) {
    End(absl::Status(durable.end.code, durable.end.reason), turn);
  } else if (durable.map.version() > 0 && ledger_.has_value()) {
    ResumeTraining(durable, turn);
  }
  Advance(turn);
  return absl::OkStatus();
}

absl::Status ChiefMachine::BeginFromRestore(Turn turn) {
  RETURN_IF_ERROR(CheckRestore(*options_.restore, job_));
  const CheckpointManifest& manifest = options_.restore->manifest();
  SetCounter("cut", manifest.cut() + 1, turn);
  const CutLedger& ledger = manifest.ledger();
  // The default depends on the number of workers; shards know their batches by the lease table of the checkpoint.
  if (job_.data().examples_per_lease() == 0 && ledger.batch_size() == job_.batch_size() &&
      ledger.examples_per_lease() > 0) {
    SetCounter("examples_per_lease", ledger.examples_per_lease(), turn);
  }
  for (int64_t epoch = 0; epoch < ledger.epochs_complete(); ++epoch) {
    EpochRecord record;
    record.epoch = epoch;
    record.evaluated = true;
    record.checkpointed = true;
    if (epoch < ledger.epochs_size()) record.report = ledger.epochs(static_cast<int>(epoch));
    record.report.set_epoch(static_cast<int32_t>(epoch + 1));
    epochs_[epoch] = record;
    turn.effects->records.push_back(record);
  }
  staleness_is_whole_ = ledger.epochs_complete() == 0;
  return absl::OkStatus();
}

absl::Status ChiefMachine::UseModel(const ModelRecord& model) {
  ASSIGN_OR_RETURN(const BatchCutter cutter, BatchCutter::Create(BatchCutter::OptionsFor(job_, model.train_records)));
  model_ = model;
  job_.mutable_data()->set_examples_per_lease(cutter.examples_per_lease());
  ledger_.emplace(cutter);
  if (job_.data().has_test() && model.test_records > 0) {
    evaluation_.emplace(model.test_records, std::max(1, job_.evaluation().examples_per_task()));
  }
  tables_.emplace(job_.cluster().ps_count());
  retirement_.emplace(job_.cluster().ps_count());
  return absl::OkStatus();
}

void ChiefMachine::ResumeTraining(const Durable& durable, Turn turn) {
  // Training has begun when a lease was given or an epoch had its cut; then every ps had loaded, and must not load
  // again.
  const bool any_cut =
      std::any_of(epochs_.begin(), epochs_.end(), [](const auto& item) { return item.second.cut > 0; });
  if (durable.leases.empty() && !any_cut) {
    phase_ = Phase::kLoading;
    // The last process may have come as far as joining workers that this one knows nothing of.
    tell_tables_when_loaded_ = true;
    SendInstall(turn);
    return;
  }
  phase_ = Phase::kTraining;
  staleness_is_whole_ = epochs_.empty();
  for (const auto& [epoch, record] : epochs_) {
    if (record.evaluated && record.checkpointed) continue;
    std::vector<EvaluationRecord> results;
    for (auto it = durable.evaluations.lower_bound({epoch, 0});
         it != durable.evaluations.end() && it->second.epoch == epoch; ++it) {
      results.push_back(it->second);
    }
    StartFollowUps(record, results, turn);
  }
  const int64_t epoch = static_cast<int64_t>(epochs_.size());
  const auto first = durable.leases.lower_bound({epoch, 0});
  if (first != durable.leases.end() && first->second.epoch == epoch) {
    ledger_->Resume(epoch, durable);
    epoch_is_open_ = true;
    epoch_started_ = turn.now;
    examples_before_start_ = ledger_->examples_done() + ledger_->examples_skipped();
  }
  TellTablesAgain(turn);
}

void ChiefMachine::TellTablesAgain(Turn turn) {
  SetMembership command;
  const std::set<uint64_t> holders = ledger_->Holders();
  for (const uint64_t incarnation : membership_.ByIndex(WORKER)) {
    Member* member = membership_.Find(incarnation);
    if (holders.count(incarnation) == 0) {
      *command.add_changes() = tables_->Park(member, &turn.effects->records);
      continue;
    }
    tables_->AssumeJoined(incarnation);
    Work& work = work_[incarnation];
    work.sequence = ledger_->LastSequenceOf(incarnation);
    work.answer = Answer::kLease;
  }
  for (const auto& [incarnation, record] : gone_) {
    if (record.role == WORKER) *command.add_changes() = tables_->Evict(record);
  }
  // A lease whose holder is gone was freed in the same transaction; this is for a state that somebody has edited.
  for (const uint64_t holder : holders) {
    if (membership_.Find(holder) == nullptr) ledger_->FreeLeasesOf(holder, &turn.effects->records);
  }
  if (command.changes_size() > 0) TellTables(command, turn);
}

absl::StatusOr<std::unique_ptr<ChiefCore>> NewChiefCore(const ChiefOptions& options, const Durable& durable,
                                                        absl::Time now, ChiefEffects* effects) {
  RETURN_IF_ERROR(CheckDurable(options, durable));
  auto machine = std::make_unique<ChiefMachine>(options, durable, now);
  RETURN_IF_ERROR(machine->Begin(durable, {now, effects}));
  return std::unique_ptr<ChiefCore>(std::move(machine));
}

}  // namespace lagrange

#include "chief/core/chief_scenario.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job_config.h"
#include "common/version.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

constexpr absl::Duration kTurn = absl::Milliseconds(10);

Key KeyOf(const BatchKey& key) { return {key.epoch(), key.lease(), key.batch()}; }

// Record r of the test data is classified rightly when r is no multiple of 3; its loss is r.
int64_t CorrectOf(int64_t first, int64_t count) {
  int64_t correct = 0;
  for (int64_t record = first; record < first + count; ++record) correct += record % 3 != 0 ? 1 : 0;
  return correct;
}

}  // namespace

ChiefOptions Scenario::DefaultOptions() {
  ChiefOptions options;
  JobSpec& job = options.job;
  job.set_name("scenario");
  job.set_epochs(2);
  job.set_batch_size(4);
  job.mutable_model()->add_input_shape(4);
  job.mutable_model()->set_class_count(2);
  job.mutable_model()->add_layers()->mutable_dense()->set_units(2);
  job.mutable_data()->mutable_train()->mutable_idx()->set_images_path("train-images");
  job.mutable_data()->mutable_train()->mutable_idx()->set_labels_path("train-labels");
  *job.mutable_data()->mutable_test() = job.data().train();
  job.mutable_data()->set_examples_per_lease(8);
  job.mutable_optimizer()->mutable_adam();
  job.mutable_evaluation()->set_examples_per_task(4);
  job.mutable_checkpoint()->set_max_to_keep(1);
  job.mutable_cluster()->set_ps_count(2);
  job.mutable_cluster()->set_worker_count(2);
  FillDefaults(&job);
  options.run_id = 0xabc;
  options.checkpoint_directory = "/checkpoints";
  options.directory_token_file = "token";
  options.directory_token = "right";
  return options;
}

Scenario::Scenario(const ChiefOptions& chief_options) : options(chief_options) {
  durable.job = options.job;
  ps.resize(options.job.cluster().ps_count());
  for (size_t i = 0; i < ps.size(); ++i) ps[i].process_id = 100 + i;
  for (int i = 0; i < options.job.cluster().worker_count(); ++i) AddWorker();
  StartChief();
}

void Scenario::AddWorker() {
  workers.emplace_back();
  workers.back().process_id = 200 + workers.size();
}

template <typename Function>
auto Scenario::Call(Function function) -> std::optional<decltype(function(std::declval<ChiefEffects*>()))> {
  ChiefEffects effects;
  auto answer = function(&effects);
  const bool crashes = calls++ == crash_at_call;
  if (crashes && crash == Crash::kBeforeCommit) {
    RestartChief();
    return std::nullopt;
  }
  Commit(effects);
  if (crashes && crash == Crash::kBeforeSending) {
    RestartChief();
    return std::nullopt;
  }
  Dispatch(effects);
  if (crashes) {
    DeliverCommands();
    RestartChief();
    return std::nullopt;
  }
  return answer;
}

void Scenario::Commit(const ChiefEffects& effects) {
  for (const Record& record : effects.records) durable.Apply(record);
}

void Scenario::Dispatch(const ChiefEffects& effects) {
  for (const OutgoingPsCommand& command : effects.ps_commands) network_.push_back(command);
  for (const ChiefAction& action : effects.actions) {
    if (const auto* manifest = std::get_if<WriteManifestAction>(&action)) manifests_to_write_.push_back(*manifest);
    if (const auto* deletion = std::get_if<DeleteCheckpointAction>(&action)) deleted.push_back(deletion->directory);
    if (const auto* exit = std::get_if<ExitAction>(&action)) exit_status = exit->status;
    if (const auto* line = std::get_if<ProgressAction>(&action)) progress.push_back(line->line);
  }
}

void Scenario::StartChief() {
  ChiefEffects effects;
  auto chief = NewChiefCore(options, durable, now, &effects);
  if (!chief.ok()) {
    exit_status = chief.status();
    return;
  }
  chief_ = *std::move(chief);
  Commit(effects);
  Dispatch(effects);
}

void Scenario::RestartChief() {
  network_.clear();
  manifests_to_write_.clear();
  StartChief();
}

PsCommandResult Scenario::Obey(int32_t ps_index, const PsCommand& command) {
  ScenarioPs& self = ps[ps_index];
  PsCommandResult result;
  const auto raise = [&self](uint64_t cut) { self.cut = std::max(self.cut, cut); };
  if (command.has_install_shards()) {
    if (!self.applied.empty()) violations.push_back("shards installed over trained ones");
    self.installed = true;
    ++self.installs;
    raise(command.install_shards().cut());
  }
  for (const MemberChange& change : command.set_membership().changes()) {
    ScenarioPs::Entry& entry = self.table[change.incarnation()];
    const bool newer = change.sequence() > entry.sequence;
    if (newer && change.state() == MemberChange::JOINED) {
      for (const auto& [incarnation, other] : self.table) entry.clock = std::max(entry.clock, other.clock);
    }
    if (newer) entry.state = change.state();
    entry.sequence = std::max(entry.sequence, change.sequence());
    if (change.state() != MemberChange::JOINED) continue;
    JoinedClock* joined = result.add_joined();
    joined->set_incarnation(change.incarnation());
    joined->set_clock(entry.clock);
  }
  for (const RetireLeases::Lease& lease : command.retire_leases().leases()) {
    raise(lease.cut());
    self.retired.emplace(lease.epoch(), lease.lease());
  }
  if (command.has_announce_cut()) {
    raise(command.announce_cut().cut());
    self.forks.insert(command.announce_cut().cut());
    for (int i = 0; i < 64; ++i) result.mutable_staleness()->add_version_counts(i == 2 ? 10 : 0);
    result.mutable_staleness()->set_version_sum(20);
    result.mutable_staleness()->set_clocks_max(1 + ps_index);
  }
  if (command.has_write_checkpoint()) {
    if (self.forks.count(command.write_checkpoint().cut()) == 0) violations.push_back("checkpoint of a fork not held");
    CheckpointFile* file = result.add_files();
    file->set_name(absl::StrCat(command.write_checkpoint().file_stem(), ".safetensors"));
    file->set_size_bytes(1);
  }
  if (command.has_release_cut()) {
    self.forks.erase(self.forks.begin(), self.forks.upper_bound(command.release_cut().cut()));
  }
  if (command.has_shut_down()) {
    self.exited = true;
    self.shutdown_reason = command.shut_down().reason();
  }
  result.set_cut(self.cut);
  return result;
}

void Scenario::DeliverCommands() {
  if (hold_ps_answers) return;
  std::deque<OutgoingPsCommand> now_due;
  now_due.swap(network_);
  for (const OutgoingPsCommand& sent : now_due) {
    ScenarioPs& target = ps[sent.ps_index];
    absl::StatusOr<PsCommandResult> result = absl::UnavailableError("no such process");
    if (target.alive) {
      std::optional<absl::Status> fault;
      if (ps_fault) fault = ps_fault(sent.ps_index, sent.command);
      if (sent.command.incarnation() != target.incarnation) fault = absl::FailedPreconditionError("incarnation");
      const bool needs_shards = !sent.command.has_install_shards() && !sent.command.has_shut_down();
      if (needs_shards && !target.installed) fault = absl::FailedPreconditionError("no shards");
      if (fault.has_value()) {
        result = *fault;
      } else {
        commands.emplace_back(sent.ps_index, sent.command);
        result = Obey(sent.ps_index, sent.command);
      }
    }
    Call([&](ChiefEffects* effects) {
      chief_->OnPsResult(sent.command_id, result, now, effects);
      return 0;
    });
  }
}

RegisterRequest Scenario::PsRequest(uint64_t process_id) const {
  RegisterRequest request;
  request.set_role(PS);
  request.set_protocol_version(kProtocolVersion);
  request.set_build_version(kBuildVersion);
  request.set_process_id(process_id);
  request.set_address(absl::StrCat("ps-", process_id, ":7000"));
  request.set_host(absl::StrCat("host-", process_id));
  request.set_directory_token("right");
  return request;
}

RegisterRequest Scenario::WorkerRequest(uint64_t process_id) const {
  RegisterRequest request = PsRequest(process_id);
  request.set_role(WORKER);
  request.clear_address();
  request.clear_directory_token();
  request.set_has_model(true);
  request.set_train_records(kTrainRecords);
  request.set_test_records(kTestRecords);
  VariableSpec* kernel = request.add_variables();
  kernel->set_name("dense_0/kernel");
  kernel->add_shape(4);
  kernel->add_shape(2);
  return request;
}

RegisterResponse Scenario::Register(const RegisterRequest& request) {
  return *Call([&](ChiefEffects* effects) { return chief_->Register(request, now, effects); });
}

AcquireWorkResponse Scenario::Acquire(const AcquireWorkRequest& request) {
  return *Call([&](ChiefEffects* effects) { return chief_->AcquireWork(request, now, effects); });
}

ReportBatchesResponse Scenario::Report(const ReportBatchesRequest& request) {
  return *Call([&](ChiefEffects* effects) { return chief_->ReportBatches(request, now, effects); });
}

HeartbeatResponse Scenario::Heartbeat(const HeartbeatRequest& request) {
  return *Call([&](ChiefEffects* effects) { return chief_->Heartbeat(request, now, effects); });
}

void Scenario::Leave(const LeaveRequest& request) {
  Call([&](ChiefEffects* effects) {
    chief_->Leave(request, now, effects);
    return 0;
  });
}

void Scenario::PsTurn(int32_t index) {
  ScenarioPs& self = ps[index];
  if (!self.alive || self.exited) return;
  if (self.incarnation == 0) {
    RegisterRequest request = PsRequest(self.process_id);
    request.set_task_index(index);
    const auto response = Call([&](ChiefEffects* effects) { return chief_->Register(request, now, effects); });
    if (response && response->outcome() == RegisterResponse::REGISTERED) self.incarnation = response->incarnation();
  } else if (now >= self.next_heartbeat) {
    self.next_heartbeat = now + options.heartbeat_interval;
    HeartbeatRequest request;
    request.set_incarnation(self.incarnation);
    Call([&](ChiefEffects* effects) { return chief_->Heartbeat(request, now, effects); });
  }
}

void Scenario::TakeDirective(ScenarioWorker* worker, Directive directive) {
  worker->last_directive = directive;
  if (directive == REGISTER_AGAIN) {
    worker->gave_up = worker->incarnation;
    worker->incarnation = 0;
    worker->asking = false;
    worker->todo.clear();
    worker->unreported.clear();
    worker->evaluation.reset();
    worker->sequence = 0;
  }
  if (directive != FINISH && directive != ABORT) return;
  worker->exited = true;
  LeaveRequest request;
  request.set_incarnation(worker->incarnation);
  Call([&](ChiefEffects* effects) {
    chief_->Leave(request, now, effects);
    return 0;
  });
}

void Scenario::RegisterWorker(ScenarioWorker* worker) {
  RegisterRequest request = WorkerRequest(worker->process_id);
  request.set_previous_incarnation(worker->gave_up);
  const auto response = Call([&](ChiefEffects* effects) { return chief_->Register(request, now, effects); });
  if (!response) return;
  if (response->outcome() == RegisterResponse::JOB_IS_COMPLETE) worker->exited = true;
  if (response->outcome() != RegisterResponse::REGISTERED) return;
  worker->incarnation = response->incarnation();
  worker->task_index = response->task_index();
}

void Scenario::AskForWork(ScenarioWorker* worker) {
  if (!worker->asking) ++worker->sequence;
  worker->asking = true;
  AcquireWorkRequest request;
  request.set_incarnation(worker->incarnation);
  request.set_generation(1);
  request.set_sequence(worker->sequence);
  const auto response = Call([&](ChiefEffects* effects) { return chief_->AcquireWork(request, now, effects); });
  if (!response || response->has_retry_after()) return;
  worker->asking = false;
  if (response->has_evaluation()) {
    worker->evaluation = response->evaluation();
    worker->evaluations.push_back(response->evaluation());
    for (const ScenarioPs& target : ps) {
      if (target.alive && target.forks.count(worker->evaluation->cut()) == 0) {
        violations.push_back("evaluation of a fork not held");
      }
    }
  } else if (response->has_lease()) {
    const LeaseGrant& lease = response->lease();
    worker->grants.emplace_back(lease.epoch(), lease.lease());
    if (lease.has_start_clock()) worker->clock = lease.start_clock();
    if (lease.has_start_clock()) worker->last_start_clock = lease.start_clock();
    for (int32_t batch = 0; batch < 2; ++batch) {
      if (std::count(lease.settled_batches().begin(), lease.settled_batches().end(), batch) > 0) continue;
      BatchKey& key = worker->todo.emplace_back();
      key.set_epoch(lease.epoch());
      key.set_lease(lease.lease());
      key.set_batch(batch);
    }
  } else {
    TakeDirective(worker, response->directive());
  }
}

void Scenario::ComputeOne(ScenarioWorker* worker) {
  const BatchKey key = worker->todo.front();
  for (const ScenarioPs& target : ps) {
    if (!target.alive) return;
    const auto entry = target.table.find(worker->incarnation);
    if (entry == target.table.end() || entry->second.state != MemberChange::JOINED) {
      // A living worker that was evicted is fenced, as it should be.
      if (entry != target.table.end() && entry->second.state == MemberChange::EVICTED) {
        return TakeDirective(worker, REGISTER_AGAIN);
      }
      violations.push_back(absl::StrCat("worker ", worker->incarnation, " steps without being in a ps's table"));
    }
  }
  BatchDone done;
  *done.mutable_key() = key;
  ++worker->clock;
  for (ScenarioPs& target : ps) {
    if (!target.applied.insert(KeyOf(key)).second) ++target.duplicates;
    done.set_cut(std::max(done.cut(), target.cut));
    target.table[worker->incarnation].clock = std::max(target.table[worker->incarnation].clock, worker->clock);
  }
  done.set_example_count(4);
  done.set_loss_sum(static_cast<double>(key.lease() * 2 + key.batch()));
  worker->todo.pop_front();
  worker->unreported.push_back(done);
}

void Scenario::ReportDone(ScenarioWorker* worker) {
  ReportBatchesRequest request;
  request.set_incarnation(worker->incarnation);
  request.set_generation(1);
  for (const BatchDone& done : worker->unreported) *request.add_done() = done;
  const auto response = Call([&](ChiefEffects* effects) { return chief_->ReportBatches(request, now, effects); });
  if (!response) return;
  worker->unreported.clear();
  for (const int verdict : response->verdicts()) {
    if (verdict != ACCEPTED && verdict != ALREADY_SETTLED && response->directive() == CONTINUE) {
      violations.push_back(absl::StrCat("a done was answered with ", BatchVerdict_Name(BatchVerdict(verdict))));
    }
  }
  if (response->directive() != CONTINUE) TakeDirective(worker, response->directive());
}

void Scenario::ReportEvaluation(ScenarioWorker* worker) {
  ReportEvaluationRequest request;
  request.set_incarnation(worker->incarnation);
  request.set_generation(1);
  *request.mutable_task() = *worker->evaluation;
  const int64_t first = worker->evaluation->first_record();
  const int64_t count = worker->evaluation->record_count();
  request.set_example_count(count);
  request.set_correct_count(CorrectOf(first, count));
  request.set_loss_sum(static_cast<double>(count * (2 * first + count - 1)) / 2);
  const auto response = Call([&](ChiefEffects* effects) { return chief_->ReportEvaluation(request, now, effects); });
  if (!response) return;
  worker->evaluation.reset();
  if (response->directive() != CONTINUE) TakeDirective(worker, response->directive());
}

void Scenario::WorkerTurn(ScenarioWorker* worker) {
  if (!worker->alive || worker->exited) return;
  if (worker->incarnation == 0) return RegisterWorker(worker);
  if (now >= worker->next_heartbeat) {
    worker->next_heartbeat = now + options.heartbeat_interval;
    HeartbeatRequest request;
    request.set_incarnation(worker->incarnation);
    const auto response = Call([&](ChiefEffects* effects) { return chief_->Heartbeat(request, now, effects); });
    if (response && response->directive() != CONTINUE) return TakeDirective(worker, response->directive());
  }
  if (worker->evaluation.has_value()) return ReportEvaluation(worker);
  if (!worker->todo.empty()) return ComputeOne(worker);
  if (!worker->unreported.empty()) return ReportDone(worker);
  AskForWork(worker);
}

void Scenario::Turn() {
  now += kTurn;
  if (chief_->next_tick() <= now) {
    Call([&](ChiefEffects* effects) {
      chief_->Tick(now, effects);
      return 0;
    });
  }
  DeliverCommands();
  while (!hold_manifests && !manifests_to_write_.empty()) {
    const WriteManifestAction action = manifests_to_write_.front();
    manifests_to_write_.pop_front();
    manifests.push_back(action.manifest);
    Call([&](ChiefEffects* effects) {
      chief_->OnManifestWritten(action.cut, absl::OkStatus(), now, effects);
      return 0;
    });
  }
  for (size_t i = 0; i < ps.size(); ++i) PsTurn(static_cast<int32_t>(i));
  for (ScenarioWorker& worker : workers) WorkerTurn(&worker);
}

bool Scenario::RunUntil(const std::function<bool()>& condition, int max_turns) {
  for (int i = 0; i < max_turns && chief_ != nullptr; ++i) {
    if (condition()) return true;
    Turn();
  }
  return condition();
}

std::vector<std::string> FaultsOfCompleteRun(const Scenario& scenario) {
  std::vector<std::string> faults = scenario.violations;
  const auto expect = [&faults](bool holds, const std::string& what) {
    if (!holds) faults.push_back(what);
  };
  expect(scenario.exit_status.has_value() && scenario.exit_status->ok(),
         absl::StrCat("exit: ", scenario.exit_status ? scenario.exit_status->ToString() : "none"));
  const int64_t epochs = scenario.options.job.epochs();
  // 5 leases of 2 batches.
  for (size_t i = 0; i < scenario.ps.size(); ++i) {
    const ScenarioPs& self = scenario.ps[i];
    expect(self.applied.size() == epochs * 10, absl::StrCat("ps ", i, " applied ", self.applied.size(), " batches"));
    expect(self.retired.size() == epochs * 5, absl::StrCat("ps ", i, " retired ", self.retired.size(), " leases"));
    expect(self.exited && self.shutdown_reason.empty(), absl::StrCat("ps ", i, " was not shut down"));
  }
  expect(scenario.durable.batches.size() == epochs * 10, "a batch isn't settled");
  for (const auto& [key, lease] : scenario.durable.leases) expect(lease.retired, "a lease isn't retired");
  expect(scenario.durable.epochs.size() == epochs, "an epoch is missing");
  for (const auto& [number, epoch] : scenario.durable.epochs) {
    expect(epoch.evaluated && epoch.checkpointed, "an epoch isn't evaluated and checkpointed");
    expect(epoch.report.examples_done() == Scenario::kTrainRecords && epoch.report.examples_skipped() == 0,
           absl::StrCat("account: ", epoch.report.examples_done(), " + ", epoch.report.examples_skipped()));
    // Batches have losses 0 to 9: 45 over 40 examples.
    expect(epoch.report.training_loss() == 1.125, absl::StrCat("training loss ", epoch.report.training_loss()));
    // 6 of the records 0 to 9 are no multiples of 3.
    expect(epoch.report.test_accuracy() == 0.6, absl::StrCat("accuracy ", epoch.report.test_accuracy()));
    expect(epoch.report.test_loss() == 4.5, absl::StrCat("test loss ", epoch.report.test_loss()));
    expect(epoch.report.staleness_mean() == 2, absl::StrCat("staleness ", epoch.report.staleness_mean()));
    expect(epoch.report.staleness_clocks_max() == 2, "clocks");
  }
  int64_t listed = 0;
  for (const auto& [cut, checkpoint] : scenario.durable.checkpoints) {
    listed += checkpoint.state == CheckpointState::kListed ? 1 : 0;
  }
  expect(listed == 1, absl::StrCat(listed, " checkpoints are listed"));
  expect(scenario.durable.ended && scenario.durable.end.code == absl::StatusCode::kOk, "the end isn't recorded");
  return faults;
}

}  // namespace lagrange

#include "tests/simulation/cluster.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/job_config.h"
#include "tests/simulation/nodes.h"

namespace lagrange::simulation {
namespace {

// Later than any healthy run, faults included, by a factor of ten.
constexpr absl::Duration kMaxDuration = absl::Minutes(10);
constexpr int64_t kMaxEvents = 500'000;
// A pull may wait for a worker that dies at once after its last heartbeat (its lease), for the eviction to reach the ps
// through lost calls, and for a slow step of the others.
constexpr absl::Duration kMaxWait = absl::Seconds(15);
// After the chief's end the members may still be hearing of it.
constexpr absl::Duration kFarewell = absl::Seconds(30);
// From then on the run must come to its end undisturbed.
constexpr absl::Duration kFaultsFor = absl::Seconds(40);

JobSpec MakeJob(const ClusterOptions& options) {
  JobSpec job;
  job.set_name("simulated");
  job.set_seed(options.seed);
  job.set_epochs(static_cast<int32_t>(options.epochs));
  job.set_batch_size(4);
  job.mutable_model()->add_input_shape(1);
  job.mutable_model()->set_class_count(2);
  job.mutable_data()->mutable_train()->mutable_idx();
  job.mutable_data()->mutable_test()->mutable_idx();
  job.mutable_data()->set_examples_per_lease(12);
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  job.mutable_evaluation()->set_examples_per_task(8);
  job.mutable_cluster()->set_ps_count(options.ps_count);
  job.mutable_cluster()->set_worker_count(options.worker_count);
  job.mutable_cluster()->mutable_worker_lease()->set_seconds(absl::ToInt64Seconds(kWorkerLease));
  job.mutable_cluster()->mutable_ps_lease()->set_seconds(30);
  const absl::StatusOr<ConsistencySpec> consistency = ParseConsistency(options.consistency, job.consistency());
  CHECK(consistency.ok());
  *job.mutable_consistency() = *consistency;
  FillDefaults(&job);
  return job;
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      chance_(options.seed),
      job_(MakeJob(options)),
      now_(absl::UnixEpoch() + absl::Hours(1)),
      faults_end_(now_ + kFaultsFor),
      chief_(std::make_unique<Chief>()),
      waits_(kMaxWait) {
  absl::StatusOr<BatchCutter> cutter = BatchCutter::Create(BatchCutter::OptionsFor(job_, kTrainRecords));
  CHECK(cutter.ok());
  cutter_ = std::make_unique<BatchCutter>(*cutter);
  numbering_ = {options.epochs, cutter_->lease_count(), cutter_->batches_per_lease()};
  applied_once_ = std::make_unique<AppliedOnceChecker>(numbering_, kVariableCount);
  cuts_ = std::make_unique<CutChecker>(numbering_);
}

Cluster::~Cluster() = default;

RunResult Cluster::Run() {
  const absl::Time began = now_;
  chief_->durable.job = job_;
  StartChief();
  for (int index = 0; index < options_.ps_count; ++index) StartPs(index);
  for (int index = 0; index < options_.worker_count; ++index) StartWorker();
  if (options_.faults) ScheduleProcessFaults();

  absl::Time farewell = absl::InfiniteFuture();
  while (result_.status.ok() && now_ < farewell) {
    const absl::Time tick = NextTick();
    const absl::Time event = events_.empty() ? absl::InfiniteFuture() : events_.top().when;
    const absl::Time next = std::min(tick, event);
    if (next == absl::InfiniteFuture()) break;
    now_ = std::max(now_, next);
    if (event <= tick) {
      const Action action = events_.top().action;
      events_.pop();
      action();
    } else {
      RunTicks();
    }
    if (chief_->done && farewell == absl::InfiniteFuture()) farewell = now_ + kFarewell;
    if (++result_.events > kMaxEvents || now_ - began > kMaxDuration) {
      Fail(absl::DeadlineExceededError(absl::StrCat("invariant 5: no end after ", result_.events, " events and ",
                                                    absl::FormatDuration(now_ - began))));
    }
    Fail(waits_.Check(now_));
  }
  for (const auto& ps : ps_) LookAtShards(ps->index);
  Fail(CheckEnd());
  result_.duration = now_ - began;
  for (const auto& ps : ps_) {
    result_.largest_staleness_clocks =
        std::max<int64_t>(result_.largest_staleness_clocks, ps->engine->Staleness().clocks_max());
  }
  return result_;
}

absl::Status Cluster::CheckEnd() const {
  if (!chief_->done) return absl::InternalError("invariant 8: the chief never ended the job");
  if (!chief_->exit_status.ok()) {
    return absl::InternalError(absl::StrCat("invariant 8: the job failed: ", chief_->exit_status.ToString()));
  }
  for (const auto& ps : ps_) {
    if (!ps->finished)
      return absl::InternalError(absl::StrCat("invariant 8: ps ", ps->index, " was never told to end"));
  }
  for (const auto& [id, worker] : workers_) {
    // One that came too late to be seated has nobody left to tell it that the job is over.
    if (worker->faulted || worker->loop->incarnation() == 0) continue;
    return absl::InternalError(absl::StrCat("invariant 8: worker process ", id, " never ended"));
  }
  if (chief_->durable.epochs.size() != static_cast<size_t>(options_.epochs)) {
    return absl::InternalError(absl::StrCat("the ledger has ", chief_->durable.epochs.size(), " epochs"));
  }
  for (const auto& [epoch, record] : chief_->durable.epochs) {
    if (record.report.examples_done() != kTrainRecords || !record.evaluated || !record.checkpointed) {
      return absl::InternalError(absl::StrCat("epoch ", epoch,
                                              "'s account doesn't close: ", record.report.ShortDebugString(),
                                              " evaluated ", record.evaluated, " checkpointed ", record.checkpointed));
    }
  }
  return applied_once_->OnEnd(chief_->durable);
}

void Cluster::Fail(const absl::Status& status) {
  if (result_.status.ok()) result_.status = status;
}

void Cluster::PrintTrace(const std::string& text) const {
  std::printf("%9.3fs %s\n", absl::ToDoubleSeconds(now_ - absl::UnixEpoch() - absl::Hours(1)), text.c_str());
}

void Cluster::At(absl::Time when, Action action) { events_.push({when, next_sequence_++, std::move(action)}); }

bool Cluster::Strikes(Fault fault, double probability) {
  if (!options_.faults || now_ > faults_end_ || !chance_.Happens(probability)) return false;
  ++result_.faults[static_cast<int>(fault)];
  Trace("fault: ", kFaultNames[static_cast<int>(fault)]);
  return true;
}

absl::Duration Cluster::NetworkDelay() { return absl::Microseconds(500 + chance_.Below(30'000)); }

void Cluster::Deliver(Action action) {
  if (Strikes(Fault::kLoss, 0.01)) return;
  if (Strikes(Fault::kRepetition, 0.02)) After(NetworkDelay() * 3, action);
  absl::Duration delay = NetworkDelay();
  if (Strikes(Fault::kDelay, 0.01)) delay += absl::Milliseconds(chance_.Below(4000));
  After(delay, std::move(action));
}

void Cluster::Call(absl::Duration deadline, std::function<std::optional<Action>()> carry_out, Action failed) {
  if (Strikes(Fault::kCallLost, 0.02)) return After(deadline, std::move(failed));
  if (Strikes(Fault::kRepetition, 0.02)) After(NetworkDelay() * 3, [carry_out] { carry_out(); });
  const bool answer_lost = Strikes(Fault::kAnswerLost, 0.02);
  After(NetworkDelay(), [this, deadline, answer_lost, carry_out, failed] {
    std::optional<Action> answer = carry_out();
    if (!answer.has_value() || answer_lost) return After(deadline, failed);
    After(NetworkDelay(), *std::move(answer));
  });
}

absl::Time Cluster::NextTick() const {
  absl::Time next = absl::InfiniteFuture();
  if (chief_->core != nullptr) next = std::min(next, chief_->core->next_tick());
  for (const auto& [id, worker] : workers_) {
    next = std::min(next, std::max(worker->loop->next_tick(), worker->paused_until));
  }
  return next;
}

void Cluster::RunTicks() {
  if (chief_->core != nullptr && chief_->core->next_tick() <= now_) {
    ChiefEffects effects;
    chief_->core->Tick(now_, &effects);
    ApplyChiefEffects(&effects);
  }
  std::vector<uint64_t> due;
  for (const auto& [id, worker] : workers_) {
    if (worker->loop->next_tick() <= now_ && worker->paused_until <= now_) due.push_back(id);
  }
  for (const uint64_t id : due) {
    OnWorker(id, [this](StepLoop* loop, WorkerEffects* effects) { loop->Tick(now_, effects); });
  }
}

}  // namespace lagrange::simulation

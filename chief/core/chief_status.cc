// What people are told.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "chief/core/chief_machine.h"
#include "common/job_config.h"
#include "common/version.h"
#include "proto/staleness_statistics.h"

namespace lagrange {
namespace {

void FillMember(const MemberRecord& record, const char* state, MemberStatus* status) {
  status->set_role(record.role);
  status->set_task_index(record.task_index);
  status->set_incarnation(record.incarnation);
  status->set_host(record.host);
  status->set_address(record.address);
  status->set_state(state);
}

}  // namespace

std::string ChiefMachine::PhaseName() const {
  if (ended_ && !end_status_.ok()) return "failed";
  if (ended_) return exited_ ? "complete" : "finishing";
  if (phase_ == Phase::kWaiting) return "waiting";
  if (phase_ == Phase::kLoading) return "loading";
  if (epoch_is_open_ || following_up_.empty()) return "training";
  const bool evaluating = std::any_of(following_up_.begin(), following_up_.end(),
                                      [this](int64_t epoch) { return !epochs_.at(epoch).evaluated; });
  return evaluating ? "evaluating" : "checkpointing";
}

StalenessStatistics ChiefMachine::StalenessOfPs() const {
  StalenessStatistics merged;
  for (const auto& [incarnation, member] : membership_.live()) {
    if (member.record.role == PS) MergeStaleness(member.heartbeat.staleness(), &merged);
  }
  return merged;
}

int64_t ChiefMachine::BadPushes() const {
  int64_t count = static_cast<int64_t>(Counter("bad_pushes"));
  // Every ps may have refused the same push, so they are not added up.
  for (const auto& [incarnation, member] : membership_.live()) {
    count = std::max(count, member.heartbeat.bad_pushes());
  }
  return count;
}

JobReport ChiefMachine::MakeReport() const {
  JobReport report;
  report.set_job_name(job_.name());
  report.set_checkpoint(plan_->LastDirectory());
  report.set_bad_pushes(BadPushes());
  double examples = 0;
  double seconds = 0;
  for (const auto& [epoch, record] : epochs_) {
    *report.add_epochs() = record.report;
    // Rates, not counts over seconds: an epoch that a restart of the chief interrupted has only its second part timed.
    examples += record.report.examples_per_second() * record.report.seconds();
    seconds += record.report.seconds();
    if (record.report.test_loss() != 0 || record.report.test_accuracy() != 0) {
      report.set_test_loss(record.report.test_loss());
      report.set_test_accuracy(record.report.test_accuracy());
    }
  }
  if (seconds > 0) report.set_examples_per_second(examples / seconds);
  // A restarted chief has lost the sums of earlier epochs; the ps have them, but a second old.
  const StalenessStatistics staleness = staleness_is_whole_ ? staleness_of_epochs_ : StalenessOfPs();
  report.set_staleness_mean(MeanStaleness(staleness));
  report.set_staleness_p99(StalenessPercentile(staleness, 0.99));
  report.set_staleness_clocks_max(static_cast<int32_t>(std::min<int64_t>(staleness.clocks_max(), INT32_MAX)));
  return report;
}

JobStatus ChiefMachine::GetStatus(absl::Time now) const {
  JobStatus status;
  status.set_job_name(job_.name());
  status.set_phase(PhaseName());
  if (ended_) {
    status.set_message(std::string(end_status_.message()));
  } else if (phase_ == Phase::kWaiting && !membership_.Missing().empty()) {
    status.set_message(absl::StrCat("waiting for ", membership_.Missing()));
  }
  status.set_epochs_total(job_.epochs());
  status.set_epoch(std::min<int32_t>(job_.epochs(), static_cast<int32_t>(epochs_.size()) + 1));
  if (model_.has_value()) status.set_examples_per_epoch(model_->train_records);
  if (ledger_.has_value() && ledger_->epoch() >= 0) {
    status.set_examples_done_in_epoch(ledger_->examples_done() + ledger_->examples_skipped());
  }
  double examples_per_second = 0;
  for (const auto& [incarnation, member] : membership_.live()) {
    MemberStatus* row = status.add_members();
    FillMember(member.record, "live", row);
    row->set_clock(member.heartbeat.clock());
    row->set_examples_per_second(member.heartbeat.examples_per_second());
    const int64_t silent_ns = std::max<int64_t>(0, absl::ToInt64Nanoseconds(now - member.last_heard));
    row->mutable_last_heard()->set_seconds(silent_ns / 1'000'000'000);
    row->mutable_last_heard()->set_nanos(static_cast<int32_t>(silent_ns % 1'000'000'000));
    if (member.record.role == WORKER) examples_per_second += member.heartbeat.examples_per_second();
  }
  for (const auto& [incarnation, record] : gone_) {
    FillMember(record, record.state == MemberState::kLeft ? "left" : "evicted", status.add_members());
  }
  status.set_examples_per_second(examples_per_second);
  *status.mutable_staleness() = StalenessOfPs();
  *status.mutable_report() = MakeReport();
  status.set_consistency(DescribeConsistency(job_.consistency()));
  status.set_term(Counter("term"));
  status.set_generation(Counter("generation"));
  status.set_map_version(map_.version());
  status.set_build_version(kBuildVersion);
  return status;
}

}  // namespace lagrange

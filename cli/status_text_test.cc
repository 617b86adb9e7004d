#include "cli/status_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

StalenessStatistics Histogram(std::vector<int64_t> counts) {
  StalenessStatistics statistics;
  for (size_t bucket = 0; bucket < counts.size(); ++bucket) {
    statistics.add_version_counts(counts[bucket]);
    statistics.set_version_sum(statistics.version_sum() + counts[bucket] * static_cast<int64_t>(bucket));
  }
  return statistics;
}

TEST(StatusText, ShowsPhaseEpochMembersRateAndStaleness) {
  JobStatus status;
  status.set_job_name("mnist");
  status.set_phase("training");
  status.set_epoch(2);
  status.set_epochs_total(10);
  status.set_examples_per_epoch(60000);
  status.set_examples_done_in_epoch(6400);
  status.set_examples_per_second(12345);
  status.set_consistency("ssp{3}");
  *status.mutable_staleness() = Histogram({1, 1});
  status.mutable_staleness()->set_clocks_max(2);
  MemberStatus* ps = status.add_members();
  ps->set_role(PS);
  ps->set_state("live");
  ps->set_address("127.0.0.1:5000");
  MemberStatus* worker = status.add_members();
  worker->set_role(WORKER);
  worker->set_task_index(1);
  worker->set_clock(17);
  worker->set_state("evicted");
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("job mnist: training\n"));
  EXPECT_THAT(text, HasSubstr("epoch 2 of 10: 6,400 of 60,000 examples settled, 12,345 examples/s"));
  EXPECT_THAT(text, HasSubstr("consistency ssp{3}: staleness mean 0.50, p99 1 versions; largest 2 clocks"));
  EXPECT_THAT(text, HasSubstr("ps       0  live"));
  EXPECT_THAT(text, HasSubstr("127.0.0.1:5000"));
  EXPECT_THAT(text, HasSubstr("worker   1  evicted"));
  EXPECT_THAT(text, HasSubstr("clock 17"));
}

}  // namespace
}  // namespace lagrange

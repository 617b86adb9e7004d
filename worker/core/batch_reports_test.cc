#include "worker/core/batch_reports.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

BatchDone DoneOf(int64_t lease, int32_t batch) {
  BatchDone done;
  done.mutable_key()->set_lease(lease);
  done.mutable_key()->set_batch(batch);
  return done;
}

BatchSkipped SkippedOf(int32_t batch) {
  BatchSkipped skipped;
  skipped.mutable_key()->set_batch(batch);
  return skipped;
}

TEST(BatchReports, FirstBatchSetsWhenTheReportIsDue) {
  BatchReports reports(absl::Seconds(1));
  reports.AddDone(DoneOf(0, 0), kNow);
  reports.AddDone(DoneOf(0, 1), kNow + absl::Milliseconds(700));
  EXPECT_EQ(reports.next_due(), kNow + absl::Seconds(1));
}

TEST(BatchReports, NothingWaitingIsNeverDue) {
  BatchReports reports(absl::Seconds(1));
  reports.Flush();
  EXPECT_EQ(reports.next_due(), absl::InfiniteFuture());
  EXPECT_TRUE(reports.empty());
}

TEST(BatchReports, OneReportAtATime) {
  BatchReports reports(absl::Seconds(1));
  reports.AddDone(DoneOf(0, 0), kNow);
  EXPECT_EQ(reports.Take().done_size(), 1);
  reports.AddDone(DoneOf(0, 1), kNow);
  reports.Flush();
  EXPECT_EQ(reports.next_due(), absl::InfiniteFuture());
  EXPECT_FALSE(reports.empty());
}

TEST(BatchReports, VerdictsCoverDonesThenSkips) {
  BatchReports reports(absl::Seconds(1));
  reports.AddSkipped(SkippedOf(5), kNow);
  reports.AddDone(DoneOf(0, 0), kNow);
  reports.AddDone(DoneOf(3, 1), kNow);
  reports.Take();
  ReportBatchesResponse response;
  response.add_verdicts(ACCEPTED);
  response.add_verdicts(NOT_HOLDER);
  const auto lost = reports.OnResponse(response, kNow + absl::Seconds(9));
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].second, 3);
  // The skip had no verdict: it waits again.
  EXPECT_EQ(reports.next_due(), kNow + absl::Seconds(9));
  const ReportBatchesRequest again = reports.Take();
  EXPECT_EQ(again.done_size(), 0);
  ASSERT_EQ(again.skipped_size(), 1);
  EXPECT_EQ(again.skipped(0).key().batch(), 5);
}

TEST(BatchReports, ReportHoldsNoMoreThanItsBound) {
  BatchReports reports(absl::Seconds(1));
  for (int i = 0; i < BatchReports::kMaxBatchesPerReport + 1; ++i) reports.AddDone(DoneOf(0, i), kNow);
  const ReportBatchesRequest first = reports.Take();
  EXPECT_EQ(first.done_size(), BatchReports::kMaxBatchesPerReport);
  ReportBatchesResponse response;
  for (int i = 0; i < first.done_size(); ++i) response.add_verdicts(ACCEPTED);
  reports.OnResponse(response, kNow);
  EXPECT_EQ(reports.next_due(), absl::InfinitePast());
  EXPECT_EQ(reports.Take().done(0).key().batch(), BatchReports::kMaxBatchesPerReport);
}

TEST(BatchReports, ResponseWithoutAReportDoesNothing) {
  BatchReports reports(absl::Seconds(1));
  ReportBatchesResponse response;
  response.add_verdicts(NOT_HOLDER);
  EXPECT_TRUE(reports.OnResponse(response, kNow).empty());
}

}  // namespace
}  // namespace lagrange

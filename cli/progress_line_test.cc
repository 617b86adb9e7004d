#include "cli/progress_line.h"

#include <limits>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

JobStatus Halfway() {
  JobStatus status;
  status.set_phase("training");
  status.set_epoch(3);
  status.set_epochs_total(4);
  status.set_examples_per_epoch(1000);
  status.set_examples_done_in_epoch(500);
  status.set_examples_per_second(100);
  return status;
}

TEST(ProgressFraction, CountsWholeEpochsAndTheOpenOne) { EXPECT_DOUBLE_EQ(ProgressFraction(Halfway()), 0.625); }

TEST(ProgressFraction, IsZeroBeforeTheSizesAreKnown) { EXPECT_EQ(ProgressFraction(JobStatus()), 0); }

TEST(ProgressFraction, NeverPassesOne) {
  JobStatus status = Halfway();
  status.set_epoch(4);
  status.set_examples_done_in_epoch(5000);
  EXPECT_DOUBLE_EQ(ProgressFraction(status), 1);
}

TEST(TimeLeft, IsExamplesLeftOverTheRate) { EXPECT_EQ(TimeLeft(Halfway()), absl::Seconds(15)); }

TEST(TimeLeft, IsInfiniteWithoutARate) {
  JobStatus status = Halfway();
  status.set_examples_per_second(0);
  EXPECT_EQ(TimeLeft(status), absl::InfiniteDuration());
  status.set_examples_per_second(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(TimeLeft(status), absl::InfiniteDuration());
}

TEST(FormatTimeLeft, ShowsHoursOnlyWhenThereAreSome) {
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(5)), "0:05");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(245)), "4:05");
  EXPECT_EQ(FormatTimeLeft(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(FormatTimeLeft(absl::InfiniteDuration()), "-");
}

TEST(FormatThousands, PutsACommaAtEachThousand) {
  EXPECT_EQ(FormatThousands(0), "0");
  EXPECT_EQ(FormatThousands(999), "999");
  EXPECT_EQ(FormatThousands(1000), "1,000");
  EXPECT_EQ(FormatThousands(1234567), "1,234,567");
  EXPECT_EQ(FormatThousands(-1234), "-1,234");
}

TEST(ProgressBar, FillsInProportion) {
  EXPECT_EQ(ProgressBar(Halfway(), 100),
            "epoch 3/4 [=========================>              ]  62%  100 examples/s  0:15 left");
}

TEST(ProgressBar, FitsANarrowTerminal) {
  for (int columns = 0; columns < 120; ++columns) {
    EXPECT_LE(static_cast<int>(ProgressBar(Halfway(), columns).size()), columns);
  }
}

TEST(ProgressText, SaysWhatIsWaitedFor) {
  JobStatus status;
  status.set_phase("waiting");
  status.set_message("waiting for ps: 1 of 2 registered");
  EXPECT_EQ(ProgressText(status), "waiting: waiting for ps: 1 of 2 registered");
  EXPECT_EQ(ProgressText(Halfway()), "training: epoch 3/4, 62%, 100 examples/s, 0:15 left");
}

}  // namespace
}  // namespace lagrange

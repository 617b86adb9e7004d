#include "proto/report_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"

namespace lagrange {
namespace {

JobReport Example() {
  JobReport report;
  report.set_test_accuracy(0.8834);
  report.set_checkpoint("/data/cut-3");
  EpochReport* epoch = report.add_epochs();
  epoch->set_epoch(1);
  epoch->set_training_loss(0.51239);
  epoch->set_test_loss(0.4);
  epoch->set_test_accuracy(0.8834);
  epoch->set_examples_per_second(12345.6);
  epoch->set_staleness_mean(1.25);
  epoch->set_staleness_p99(4);
  epoch->set_examples_done(60000);
  return report;
}

TEST(ReportTable, HasARowForEachEpochAndTheCheckpoint) {
  EXPECT_EQ(FormatReportTable(Example()),
            "epoch  training loss  test loss  test accuracy  examples/s  staleness mean   p99\n"
            "    1         0.5124     0.4000         0.8834       12346            1.25     4\n"
            "checkpoint: /data/cut-3\n");
}

TEST(ReportTable, EpochWithoutEvaluationHasDashes) {
  JobReport report = Example();
  report.mutable_epochs(0)->clear_test_loss();
  report.mutable_epochs(0)->clear_test_accuracy();
  EXPECT_TRUE(absl::StrContains(FormatReportTable(report), "0.5124          -              -       12346"))
      << FormatReportTable(report);
}

TEST(ReportTable, SkippedExamplesAndBadPushesAreSaid) {
  JobReport report = Example();
  report.set_bad_pushes(2);
  report.mutable_epochs(0)->set_examples_skipped(64);
  const std::string table = FormatReportTable(report);
  EXPECT_TRUE(absl::StrContains(table, "64 examples skipped")) << table;
  EXPECT_TRUE(absl::StrContains(table, "2 pushes were refused for NaN or Inf")) << table;
}

TEST(ReportTable, NoCheckpointIsSaid) {
  EXPECT_TRUE(absl::StrContains(FormatReportTable(JobReport()), "checkpoint: none")) << FormatReportTable(JobReport());
}

TEST(ReportJson, HasEveryFieldUnderItsProtoName) {
  const auto text = FormatReportJson(Example());
  ASSERT_TRUE(text.ok()) << text.status();
  const auto json = nlohmann::json::parse(*text);
  EXPECT_EQ(json.at("test_accuracy").get<double>(), 0.8834);
  EXPECT_EQ(json.at("test_loss").get<double>(), 0);
  EXPECT_EQ(json.at("examples_per_second").get<double>(), 0);
  EXPECT_EQ(json.at("staleness_mean").get<double>(), 0);
  EXPECT_EQ(json.at("staleness_p99").get<double>(), 0);
  EXPECT_EQ(json.at("staleness_clocks_max").get<int>(), 0);
  EXPECT_EQ(json.at("checkpoint").get<std::string>(), "/data/cut-3");
  EXPECT_EQ(json.at("epochs").at(0).at("training_loss").get<double>(), 0.51239);
  EXPECT_EQ(json.at("epochs").at(0).at("examples_skipped").get<std::string>(), "0");
}

}  // namespace
}  // namespace lagrange

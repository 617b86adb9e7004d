#include "chief/core/evaluation.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

// 10 records in tasks of 4, 4 and 2.
class EvaluationTest : public ::testing::Test {
 protected:
  EvaluationTest() : evaluation(10, 4) { evaluation.Open(3, 9, {}); }

  ReportEvaluationRequest ResultOf(const EvaluationTask& task) {
    ReportEvaluationRequest request;
    *request.mutable_task() = task;
    request.set_example_count(task.record_count());
    request.set_correct_count(1);
    request.set_loss_sum(0.5);
    return request;
  }

  Evaluation evaluation;
  std::vector<Record> records;
};

TEST_F(EvaluationTest, TasksCoverTheRecordsOnce) {
  int64_t next = 0;
  for (uint64_t worker = 1; worker <= 3; ++worker) {
    const EvaluationTask task = *evaluation.Give(worker);
    EXPECT_EQ(task.first_record(), next);
    EXPECT_EQ(task.cut(), 9);
    next += task.record_count();
  }
  EXPECT_EQ(next, 10);
  EXPECT_FALSE(evaluation.Give(4).has_value());
  EXPECT_FALSE(evaluation.HasTask());
}

TEST_F(EvaluationTest, AWorkerThatAsksAgainGetsItsTask) {
  const EvaluationTask task = *evaluation.Give(1);
  EXPECT_EQ(evaluation.Give(1)->first_record(), task.first_record());
}

TEST_F(EvaluationTest, AReturnedTaskIsGivenAgain) {
  const EvaluationTask task = *evaluation.Give(1);
  evaluation.ReturnTaskOf(1);
  EXPECT_EQ(evaluation.Give(2)->first_record(), task.first_record());
}

TEST_F(EvaluationTest, TheFirstResultOfATaskCounts) {
  const EvaluationTask task = *evaluation.Give(1);
  evaluation.ReturnTaskOf(1);
  evaluation.Give(2);
  EXPECT_TRUE(evaluation.Report(1, ResultOf(task), &records));
  EXPECT_TRUE(evaluation.Report(2, ResultOf(task), &records));
  EXPECT_EQ(records.size(), 1);
  for (uint64_t worker = 1; worker <= 2; ++worker) {
    EXPECT_TRUE(evaluation.Report(worker, ResultOf(*evaluation.Give(worker)), &records));
  }
  ASSERT_TRUE(evaluation.IsComplete(3));
  const Evaluation::Sums sums = evaluation.Close(3);
  EXPECT_EQ(sums.example_count, 10);
  EXPECT_EQ(sums.correct_count, 3);
  EXPECT_EQ(sums.loss_sum, 1.5);
}

TEST_F(EvaluationTest, AnAbandonedTaskIsGivenAgain) {
  ReportEvaluationRequest abandoned = ResultOf(*evaluation.Give(1));
  abandoned.set_abandoned(true);
  EXPECT_FALSE(evaluation.Report(1, abandoned, &records));
  EXPECT_EQ(evaluation.Give(2)->first_record(), 0);
}

TEST_F(EvaluationTest, ImpossibleResultsAreRefused) {
  const EvaluationTask task = *evaluation.Give(1);
  ReportEvaluationRequest request = ResultOf(task);
  request.set_example_count(5);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  request = ResultOf(task);
  request.set_correct_count(5);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  request = ResultOf(task);
  request.mutable_task()->set_first_record(-4);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  request = ResultOf(task);
  request.mutable_task()->set_first_record(3);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  request = ResultOf(task);
  request.mutable_task()->set_cut(8);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  request = ResultOf(task);
  request.mutable_task()->set_epoch(4);
  EXPECT_FALSE(evaluation.Report(1, request, &records));
  EXPECT_TRUE(records.empty());
}

TEST_F(EvaluationTest, ResultsFromTheRecordsAreNotComputedAgain) {
  EvaluationRecord known;
  known.epoch = 3;
  known.first_record = 4;
  known.example_count = 4;
  evaluation.Open(3, 9, {known});
  EXPECT_EQ(evaluation.Give(1)->first_record(), 0);
  EXPECT_EQ(evaluation.Give(2)->first_record(), 8);
  EXPECT_FALSE(evaluation.Give(3).has_value());
}

}  // namespace
}  // namespace lagrange

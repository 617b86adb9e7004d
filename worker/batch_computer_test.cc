#include "worker/batch_computer.h"

#include <cmath>

#include "gtest/gtest.h"
#include "worker/worker_testing.h"

namespace lagrange {
namespace {

BatchKey Key(int64_t lease, int32_t batch) {
  BatchKey key;
  key.set_lease(lease);
  key.set_batch(batch);
  return key;
}

class BatchComputerTest : public testing::Test {
 protected:
  void Open(std::map<int64_t, float> overrides = {}) {
    auto computer = BatchComputer::Create(SmallJob(), SmallParts(std::move(overrides)));
    ASSERT_TRUE(computer.ok()) << computer.status();
    computer_ = *std::move(computer);
  }

  ComputeResult Compute(const BatchKey& key) { return computer_->Compute(key, {1, 17}, parameters_, gradients_); }

  // A record of the batch.
  int64_t RecordOf(const BatchKey& key) {
    std::vector<int64_t> records;
    computer_->cutter().RecordsOf(key, &records);
    return records[0];
  }

  const ParameterMemory parameters_ = *ParameterMemory::Create(SmallModel().variables());
  const ParameterMemory gradients_ = *ParameterMemory::Create(SmallModel().variables());
  std::unique_ptr<BatchComputer> computer_;
};

TEST_F(BatchComputerTest, BatchesOfAnEpochSumToAllRecords) {
  Open();
  double loss_sum = 0;
  int64_t examples = 0;
  for (const auto& [lease, batches] : {std::pair(0, 3), std::pair(1, 2)}) {
    for (int batch = 0; batch < batches; ++batch) {
      const ComputeResult result = Compute(Key(lease, batch));
      ASSERT_TRUE(result.status.ok()) << result.status;
      EXPECT_EQ(gradients_.variables()[0][0], result.loss_sum / result.example_count);
      EXPECT_EQ(gradients_.variables()[0][1], -1);
      loss_sum += result.loss_sum;
      examples += result.example_count;
    }
  }
  EXPECT_EQ(examples, 10);
  EXPECT_EQ(loss_sum, 45);
}

TEST_F(BatchComputerTest, NonFiniteGradientNamesVariableWorkerStepAndBatch) {
  Open();
  const int64_t record = RecordOf(Key(1, 1));
  Open({{record, NAN}});
  const ComputeResult result = Compute(Key(1, 1));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status.message(),
            "variable small/kernel, worker 1, step 17 (epoch 0, lease 1, batch 1): gradient element 0 is nan");
  EXPECT_EQ(result.example_count, 2);
}

TEST_F(BatchComputerTest, ExceptionOfAModelIsAnInternalError) {
  Open();
  const int64_t record = RecordOf(Key(0, 0));
  Open({{record, kThrow}});
  const ComputeResult result = Compute(Key(0, 0));
  EXPECT_EQ(result.status.code(), absl::StatusCode::kInternal);
  EXPECT_NE(result.status.message().find("device lost"), std::string::npos);
}

TEST_F(BatchComputerTest, EvaluationCoversItsRecordsAlone) {
  Open();
  EvaluationTask task;
  task.set_first_record(3);
  task.set_record_count(5);
  const EvaluationResult result = computer_->Evaluate(task, parameters_);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.example_count, 5);
  EXPECT_EQ(result.loss_sum, 3 + 4 + 5 + 6 + 7);
  EXPECT_EQ(result.correct_count, 3);
}

TEST_F(BatchComputerTest, EvaluationPastTheDataIsRefused) {
  Open();
  EvaluationTask task;
  task.set_first_record(INT64_MAX);
  task.set_record_count(INT64_MAX);
  EXPECT_EQ(computer_->Evaluate(task, parameters_).status.code(), absl::StatusCode::kOutOfRange);
}

TEST_F(BatchComputerTest, JobThatIsNoneIsRefused) {
  JobSpec job = SmallJob();
  job.set_batch_size(-1);
  const auto computer = BatchComputer::Create(job, SmallParts());
  EXPECT_EQ(computer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(computer.status().message().find("batch_size"), std::string::npos);
}

}  // namespace
}  // namespace lagrange

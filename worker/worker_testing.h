// A job small enough to know by heart: 10 records in batches of 2, one variable of 2 elements. For tests.
//
// Record r's input is r. Gradient of a batch: [mean of its inputs, -1]; loss of an example: its input. An input of
// kThrow makes the model throw.

#ifndef WORKER_WORKER_TESTING_H_
#define WORKER_WORKER_TESTING_H_

#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job_config.h"
#include "proto/job.pb.h"
#include "worker/batch_computer.h"

namespace lagrange {

inline constexpr float kThrow = 666;
inline constexpr int64_t kSmallRecords = 10;

class SmallDataset final : public Dataset {
 public:
  explicit SmallDataset(std::map<int64_t, float> overrides) : overrides_(std::move(overrides)) {}

  int64_t record_count() const override { return kSmallRecords; }
  const std::vector<int32_t>& example_shape() const override { return shape_; }
  absl::Status Read(absl::Span<const int64_t> records, absl::Span<float> inputs,
                    absl::Span<int32_t> labels) const override {
    for (size_t i = 0; i < records.size(); ++i) {
      const auto found = overrides_.find(records[i]);
      inputs[i] = found == overrides_.end() ? static_cast<float>(records[i]) : found->second;
      labels[i] = records[i] % 2;
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int32_t> shape_ = {1};
  std::map<int64_t, float> overrides_;
};

class SmallModel final : public Model {
 public:
  SmallModel() : variables_(1) {
    variables_[0].set_name("small/kernel");
    variables_[0].add_shape(2);
    variables_[0].mutable_initializer()->mutable_zeros();
  }

  const std::vector<VariableSpec>& variables() const override { return variables_; }
  int64_t input_elements() const override { return 1; }
  int32_t class_count() const override { return 2; }
  absl::StatusOr<BatchMetrics> ComputeGradients(const LabeledBatch& batch, absl::Span<const float* const> parameters,
                                                absl::Span<float* const> gradients) override {
    BatchMetrics metrics = *Evaluate(batch, parameters);
    gradients[0][0] = static_cast<float>(metrics.loss_sum / batch.example_count);
    gradients[0][1] = -1;
    return metrics;
  }
  // Hits: odd labels.
  absl::StatusOr<BatchMetrics> Evaluate(const LabeledBatch& batch, absl::Span<const float* const>) override {
    BatchMetrics metrics;
    metrics.example_count = batch.example_count;
    for (int64_t i = 0; i < batch.example_count; ++i) {
      if (batch.inputs[i] == kThrow) std::rethrow_exception(std::make_exception_ptr(std::runtime_error("device lost")));
      metrics.loss_sum += batch.inputs[i];
      metrics.correct_count += batch.labels[i];
    }
    return metrics;
  }

 private:
  std::vector<VariableSpec> variables_;
};

// Two leases: batches 0..2 and 0..1.
inline JobSpec SmallJob() {
  JobSpec job;
  job.set_name("small");
  job.set_epochs(1);
  job.set_batch_size(2);
  job.mutable_model()->add_input_shape(1);
  job.mutable_model()->set_class_count(2);
  job.mutable_model()->add_layers()->mutable_dense()->set_units(2);
  job.mutable_data()->mutable_train()->mutable_idx()->set_images_path("images");
  job.mutable_data()->mutable_train()->mutable_idx()->set_labels_path("labels");
  *job.mutable_data()->mutable_test() = job.data().train();
  job.mutable_data()->set_examples_per_lease(6);
  job.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  FillDefaults(&job);
  return job;
}

inline WorkerParts SmallParts(std::map<int64_t, float> overrides = {}) {
  WorkerParts parts;
  parts.make_model = [](const ModelSpec&) -> absl::StatusOr<std::unique_ptr<Model>> {
    return std::make_unique<SmallModel>();
  };
  parts.open_dataset = [overrides](const DatasetSpec&,
                                   const DatasetExpectations&) -> absl::StatusOr<std::unique_ptr<Dataset>> {
    return std::make_unique<SmallDataset>(overrides);
  };
  return parts;
}

}  // namespace lagrange

#endif  // WORKER_WORKER_TESTING_H_

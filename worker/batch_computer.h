// What a worker computes of a job: its data, its model, and the gradients of a named batch.
//
// For the worker's compute thread. Caller synchronizes. Owns data sets, model and the memory of one batch, so a step
// allocates nothing. An exception of a model or reader comes back as an Internal status: the worker is broken then.

#ifndef WORKER_BATCH_COMPUTER_H_
#define WORKER_BATCH_COMPUTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/batch_cutter.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"
#include "worker/core/step_loop.h"
#include "worker/data/reader.h"
#include "worker/model/model.h"
#include "worker/parameter_memory.h"

namespace lagrange {

using ModelFactory = std::function<absl::StatusOr<std::unique_ptr<Model>>(const ModelSpec&)>;

// Where models and data come from; a custom worker gives its own.
struct WorkerParts {
  ModelFactory make_model = NewModel;
  DatasetFactory open_dataset = OpenDataset;
};

// For messages.
struct StepName {
  int32_t task_index = 0;
  int64_t clock = 0;
};

class BatchComputer {
 public:
  // From a job as the chief sent it. Errors name the field or file: InvalidArgument, NotFound, DataLoss, ...; Internal
  // when a batch doesn't fit into memory.
  static absl::StatusOr<std::unique_ptr<BatchComputer>> Create(const JobSpec& job, const WorkerParts& parts);

  const std::vector<VariableSpec>& variables() const { return model_->variables(); }
  const BatchCutter& cutter() const { return cutter_; }
  const JobSpec& job() const { return job_; }
  int64_t train_records() const { return train_->record_count(); }
  // 0 without test data.
  int64_t test_records() const { return test_ == nullptr ? 0 : test_->record_count(); }

  // Gradients of the batch. A loss or gradient that isn't finite is InvalidArgument: "variable dense_0/kernel, worker
  // 1, step 17 (epoch 0, lease 3, batch 2): gradient element 5 is nan". REQUIRES: cutter().Contains(key).
  ComputeResult Compute(const BatchKey& key, const StepName& step, const ParameterMemory& parameters,
                        const ParameterMemory& gradients);

  // Loss and hits on the task's test records; OutOfRange when the data hasn't got them.
  EvaluationResult Evaluate(const EvaluationTask& task, const ParameterMemory& parameters);

 private:
  BatchComputer(const JobSpec& job, const BatchCutter& cutter) : job_(job), cutter_(cutter) {}

  // Reads the records into the batch's memory.
  absl::StatusOr<LabeledBatch> ReadBatch(const Dataset& dataset);
  absl::Status ComputeChecked(const BatchKey& key, const StepName& step, const ParameterMemory& parameters,
                              const ParameterMemory& gradients, ComputeResult* result);
  absl::Status EvaluateChecked(const EvaluationTask& task, const ParameterMemory& parameters, EvaluationResult* result);

  const JobSpec job_;
  const BatchCutter cutter_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Dataset> train_;
  std::unique_ptr<Dataset> test_;
  std::vector<int64_t> records_;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
};

}  // namespace lagrange

#endif  // WORKER_BATCH_COMPUTER_H_

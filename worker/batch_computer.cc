#include "worker/batch_computer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job_config.h"
#include "common/status.h"
#include "kernels/update_rules.h"

namespace lagrange {
namespace {

// A custom model's or reader's exception must not end the process without a word.
template <typename Function>
absl::Status WithoutExceptions(Function function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return absl::InternalError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception: ", error.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

std::string DescribeBatch(const BatchKey& key) {
  return absl::StrCat("epoch ", key.epoch(), ", lease ", key.lease(), ", batch ", key.batch());
}

absl::Status CheckFinite(const BatchKey& key, const StepName& step, const std::vector<VariableSpec>& variables,
                         const ParameterMemory& gradients, double loss_sum) {
  const std::string where =
      absl::StrCat("worker ", step.task_index, ", step ", step.clock, " (", DescribeBatch(key), ")");
  for (size_t i = 0; i < variables.size(); ++i) {
    const float* gradient = gradients.variables()[i];
    const int64_t element = kernels::FirstNonFinite(gradients.counts()[i], gradient);
    if (element < 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("variable ", variables[i].name(), ", ", where, ": gradient element ",
                                                   element, " is ", gradient[element]));
  }
  if (!std::isfinite(loss_sum)) return absl::InvalidArgumentError(absl::StrCat(where, ": the loss is ", loss_sum));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchComputer>> BatchComputer::Create(const JobSpec& sent_job,
                                                                     const WorkerParts& parts) {
  std::unique_ptr<BatchComputer> computer;
  const absl::Status status = WithoutExceptions([&]() -> absl::Status {
    JobSpec job = sent_job;
    FillDefaults(&job);
    RETURN_IF_ERROR(Annotate(ValidateJob(job), "the chief's job"));
    ASSIGN_OR_RETURN(std::unique_ptr<Model> model, parts.make_model(job.model()));
    DatasetExpectations expectations;
    expectations.example_shape.assign(job.model().input_shape().begin(), job.model().input_shape().end());
    expectations.class_count = job.model().class_count();
    ASSIGN_OR_RETURN(std::unique_ptr<Dataset> train, parts.open_dataset(job.data().train(), expectations));
    std::unique_ptr<Dataset> test;
    if (job.data().has_test()) {
      ASSIGN_OR_RETURN(test, parts.open_dataset(job.data().test(), expectations));
    }
    ASSIGN_OR_RETURN(const BatchCutter cutter,
                     BatchCutter::Create(BatchCutter::OptionsFor(job, train->record_count())));
    computer.reset(new BatchComputer(job, cutter));
    const int64_t examples = std::min<int64_t>(
        job.batch_size(), std::max(train->record_count(), test == nullptr ? 0 : test->record_count()));
    computer->records_.reserve(examples);
    computer->inputs_.resize(examples * model->input_elements());
    computer->labels_.resize(examples);
    computer->model_ = std::move(model);
    computer->train_ = std::move(train);
    computer->test_ = std::move(test);
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(status);
  return computer;
}

absl::StatusOr<LabeledBatch> BatchComputer::ReadBatch(const Dataset& dataset) {
  const int64_t count = static_cast<int64_t>(records_.size());
  const absl::Span<float> inputs = absl::MakeSpan(inputs_).first(count * model_->input_elements());
  const absl::Span<int32_t> labels = absl::MakeSpan(labels_).first(count);
  RETURN_IF_ERROR(dataset.Read(records_, inputs, labels));
  return LabeledBatch{inputs, labels, count};
}

ComputeResult BatchComputer::Compute(const BatchKey& key, const StepName& step, const ParameterMemory& parameters,
                                     const ParameterMemory& gradients) {
  ComputeResult result;
  result.example_count = cutter_.ExamplesIn(key);
  result.status = WithoutExceptions([&] { return ComputeChecked(key, step, parameters, gradients, &result); });
  return result;
}

absl::Status BatchComputer::ComputeChecked(const BatchKey& key, const StepName& step, const ParameterMemory& parameters,
                                           const ParameterMemory& gradients, ComputeResult* result) {
  cutter_.RecordsOf(key, &records_);
  const auto compute = [&]() -> absl::StatusOr<BatchMetrics> {
    ASSIGN_OR_RETURN(const LabeledBatch batch, ReadBatch(*train_));
    return model_->ComputeGradients(batch, parameters.const_variables(), gradients.variables());
  };
  const absl::StatusOr<BatchMetrics> metrics = compute();
  RETURN_IF_ERROR(Annotate(metrics.status(), DescribeBatch(key)));
  result->loss_sum = metrics->loss_sum;
  return CheckFinite(key, step, model_->variables(), gradients, metrics->loss_sum);
}

EvaluationResult BatchComputer::Evaluate(const EvaluationTask& task, const ParameterMemory& parameters) {
  EvaluationResult result;
  result.status = WithoutExceptions([&] { return EvaluateChecked(task, parameters, &result); });
  return result;
}

absl::Status BatchComputer::EvaluateChecked(const EvaluationTask& task, const ParameterMemory& parameters,
                                            EvaluationResult* result) {
  const int64_t available = test_records();
  if (task.first_record() < 0 || task.record_count() < 0 || task.first_record() > available ||
      task.record_count() > available - task.first_record()) {
    return absl::OutOfRangeError(absl::StrCat("evaluation of test records [", task.first_record(), ", ",
                                              task.first_record(), " + ", task.record_count(), "), the data has ",
                                              available));
  }
  const int64_t end = task.first_record() + task.record_count();
  const int64_t step = static_cast<int64_t>(labels_.size());
  for (int64_t begin = task.first_record(); begin < end; begin += step) {
    records_.resize(std::min(step, end - begin));
    std::iota(records_.begin(), records_.end(), begin);
    ASSIGN_OR_RETURN(const LabeledBatch batch, ReadBatch(*test_));
    ASSIGN_OR_RETURN(const BatchMetrics metrics, model_->Evaluate(batch, parameters.const_variables()));
    result->example_count += metrics.example_count;
    result->correct_count += metrics.correct_count;
    result->loss_sum += metrics.loss_sum;
  }
  return absl::OkStatus();
}

}  // namespace lagrange

#include "cli/job_checks.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/file_system.h"
#include "common/partition.h"
#include "common/status.h"
#include "worker/data/reader.h"
#include "worker/model/model.h"

namespace lagrange {
namespace {

// A job file is written by hand; a larger one is some other file.
constexpr int64_t kMaxJobFileBytes = 16 << 20;

// "model.layers[1].dense: ..." becomes "FILE:LINE:COLUMN: model.layers[1].dense: ...".
absl::Status WithLocation(const ParsedJob& job, const absl::Status& status) {
  const absl::string_view message = status.message();
  const absl::string_view path = message.substr(0, message.find(':'));
  return absl::Status(status.code(), absl::StrCat(DescribeField(job, path), message.substr(path.size())));
}

absl::StatusOr<int64_t> CheckDataset(const ParsedJob& job, const DatasetSpec& dataset, absl::string_view path) {
  DatasetExpectations expectations;
  expectations.example_shape.assign(job.spec.model().input_shape().begin(), job.spec.model().input_shape().end());
  expectations.class_count = job.spec.model().class_count();
  absl::StatusOr<std::unique_ptr<Dataset>> opened = OpenDataset(dataset, expectations);
  if (!opened.ok()) return Annotate(opened.status(), DescribeField(job, path));
  return (*opened)->record_count();
}

absl::Status ApplyOverrides(const JobOverrides& overrides, JobSpec* spec) {
  if (overrides.ps_count != 0) spec->mutable_cluster()->set_ps_count(overrides.ps_count);
  if (overrides.worker_count != 0) spec->mutable_cluster()->set_worker_count(overrides.worker_count);
  if (overrides.epochs != 0) spec->set_epochs(overrides.epochs);
  if (!overrides.consistency.empty()) {
    ASSIGN_OR_RETURN(*spec->mutable_consistency(), ParseConsistency(overrides.consistency, spec->consistency()));
  }
  return Annotate(ValidateJob(*spec), "with the command line's flags");
}

}  // namespace

absl::StatusOr<CheckedJob> CheckJob(const std::string& job_path, const JobOverrides& overrides) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(job_path, kMaxJobFileBytes));
  ASSIGN_OR_RETURN(ParsedJob job, ParseJob(job_path, text));
  RETURN_IF_ERROR(ApplyOverrides(overrides, &job.spec));

  CheckedJob checked;
  absl::StatusOr<std::unique_ptr<Model>> model = NewModel(job.spec.model());
  if (!model.ok()) return WithLocation(job, model.status());
  for (const VariableSpec& variable : (*model)->variables()) {
    ASSIGN_OR_RETURN(const int64_t count, ElementCount(variable));
    checked.parameter_count += count;
  }
  ASSIGN_OR_RETURN(checked.train_records, CheckDataset(job, job.spec.data().train(), "data.train"));
  if (job.spec.data().has_test()) {
    ASSIGN_OR_RETURN(checked.test_records, CheckDataset(job, job.spec.data().test(), "data.test"));
  }
  checked.spec = std::move(job.spec);
  return checked;
}

}  // namespace lagrange

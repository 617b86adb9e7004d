#include "chief/core/evaluation.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace lagrange {

Evaluation::Evaluation(int64_t test_records, int64_t examples_per_task)
    : test_records_(test_records), examples_per_task_(examples_per_task) {
  CHECK(test_records >= 1 && examples_per_task >= 1);
}

int64_t Evaluation::TaskCount() const { return (test_records_ - 1) / examples_per_task_ + 1; }

void Evaluation::Open(int64_t epoch, uint64_t cut, const std::vector<EvaluationRecord>& results) {
  OpenEpoch& open = epochs_[epoch];
  open = OpenEpoch();
  open.cut = cut;
  open.done.resize(TaskCount());
  for (const EvaluationRecord& record : results) Add(record, &open);
}

void Evaluation::Add(const EvaluationRecord& record, OpenEpoch* open) {
  const int64_t task = record.first_record / examples_per_task_;
  if (task < 0 || task >= TaskCount() || open->done[task]) return;
  open->done[task] = true;
  ++open->done_count;
  open->returned.erase(task);
  open->sums.example_count += record.example_count;
  open->sums.correct_count += record.correct_count;
  open->sums.loss_sum += record.loss_sum;
}

bool Evaluation::HasTask() const {
  for (const auto& [epoch, open] : epochs_) {
    if (!open.returned.empty()) return true;
    for (int64_t task = open.next_task; task < TaskCount(); ++task) {
      if (!open.done[task]) return true;
    }
  }
  return false;
}

std::optional<EvaluationTask> Evaluation::Give(uint64_t incarnation) {
  const auto assigned = assigned_.find(incarnation);
  if (assigned != assigned_.end()) {
    const OpenEpoch& open = epochs_.at(assigned->second.epoch);
    if (!open.done[assigned->second.task]) return Message(assigned->second.epoch, assigned->second.task);
    assigned_.erase(assigned);
  }
  for (auto& [epoch, open] : epochs_) {
    int64_t task = -1;
    if (!open.returned.empty()) {
      task = *open.returned.begin();
      open.returned.erase(open.returned.begin());
    } else {
      while (open.next_task < TaskCount() && open.done[open.next_task]) ++open.next_task;
      if (open.next_task == TaskCount()) continue;
      task = open.next_task++;
    }
    assigned_[incarnation] = {epoch, task};
    return Message(epoch, task);
  }
  return std::nullopt;
}

std::optional<EvaluationTask> Evaluation::TaskOf(uint64_t incarnation) const {
  const auto found = assigned_.find(incarnation);
  if (found == assigned_.end()) return std::nullopt;
  return Message(found->second.epoch, found->second.task);
}

EvaluationTask Evaluation::Message(int64_t epoch, int64_t task) const {
  EvaluationTask message;
  message.set_epoch(epoch);
  message.set_cut(epochs_.at(epoch).cut);
  message.set_first_record(task * examples_per_task_);
  message.set_record_count(std::min(examples_per_task_, test_records_ - task * examples_per_task_));
  return message;
}

void Evaluation::ReturnTaskOf(uint64_t incarnation) {
  const auto found = assigned_.find(incarnation);
  if (found == assigned_.end()) return;
  OpenEpoch& open = epochs_.at(found->second.epoch);
  if (!open.done[found->second.task]) open.returned.insert(found->second.task);
  assigned_.erase(found);
}

bool Evaluation::Report(uint64_t incarnation, const ReportEvaluationRequest& request, std::vector<Record>* records) {
  const EvaluationTask& task = request.task();
  const auto assigned = assigned_.find(incarnation);
  if (assigned != assigned_.end() && assigned->second.epoch == task.epoch() &&
      assigned->second.task == task.first_record() / examples_per_task_) {
    ReturnTaskOf(incarnation);
  }
  const auto epoch = epochs_.find(task.epoch());
  if (request.abandoned() || epoch == epochs_.end() || epoch->second.cut != task.cut()) return false;
  if (task.first_record() < 0 || task.first_record() >= test_records_ ||
      task.first_record() % examples_per_task_ != 0) {
    return false;
  }
  const int64_t number = task.first_record() / examples_per_task_;
  if (request.example_count() < 0 || request.example_count() > Message(task.epoch(), number).record_count() ||
      request.correct_count() < 0 || request.correct_count() > request.example_count()) {
    return false;
  }
  if (epoch->second.done[number]) return true;
  EvaluationRecord record;
  record.epoch = task.epoch();
  record.first_record = task.first_record();
  record.example_count = request.example_count();
  record.correct_count = request.correct_count();
  record.loss_sum = request.loss_sum();
  Add(record, &epoch->second);
  records->push_back(record);
  return true;
}

bool Evaluation::IsComplete(int64_t epoch) const {
  const auto found = epochs_.find(epoch);
  return found != epochs_.end() && found->second.done_count == TaskCount();
}

Evaluation::Sums Evaluation::Close(int64_t epoch) {
  CHECK(IsComplete(epoch));
  const Sums sums = epochs_.at(epoch).sums;
  // A worker may still compute a task that another one's late result has settled.
  for (auto it = assigned_.begin(); it != assigned_.end();) {
    it = it->second.epoch == epoch ? assigned_.erase(it) : std::next(it);
  }
  epochs_.erase(epoch);
  return sums;
}

}  // namespace lagrange

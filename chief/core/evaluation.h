// Hands out the test data of finished epochs in tasks, one worker each, and adds up what comes back.
//
// For the chief's core. Caller synchronizes. Owns a bit for each task of each open evaluation. A task whose worker died
// goes back into the pool; the first result of a task counts, whoever sends it, so repeats change nothing.

#ifndef CHIEF_CORE_EVALUATION_H_
#define CHIEF_CORE_EVALUATION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "chief/core/records.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class Evaluation {
 public:
  // Both at least 1.
  Evaluation(int64_t test_records, int64_t examples_per_task);

  // All tasks of the epoch are to be done on the fork of this cut, less those in `results`.
  void Open(int64_t epoch, uint64_t cut, const std::vector<EvaluationRecord>& results);
  bool IsOpen(int64_t epoch) const { return epochs_.count(epoch) > 0; }
  bool HasTask() const;
  // A task that nobody has, of the earliest epoch, or nothing. The same again to a worker that has one.
  std::optional<EvaluationTask> Give(uint64_t incarnation);
  std::optional<EvaluationTask> TaskOf(uint64_t incarnation) const;
  void ReturnTaskOf(uint64_t incarnation);

  // False: no such open task, or numbers that can't be; nothing changed then but that the reporter's task is free
  // again.
  bool Report(uint64_t incarnation, const ReportEvaluationRequest& request, std::vector<Record>* records);

  bool IsComplete(int64_t epoch) const;
  struct Sums {
    int64_t example_count = 0;
    int64_t correct_count = 0;
    double loss_sum = 0;
  };
  // REQUIRES: IsComplete(epoch). Forgets the epoch.
  Sums Close(int64_t epoch);

 private:
  struct OpenEpoch {
    uint64_t cut = 0;
    int64_t next_task = 0;
    std::set<int64_t> returned;
    std::vector<bool> done;
    int64_t done_count = 0;
    Sums sums;
  };

  int64_t TaskCount() const;
  EvaluationTask Message(int64_t epoch, int64_t task) const;
  void Add(const EvaluationRecord& record, OpenEpoch* open);

  int64_t test_records_;
  int64_t examples_per_task_;
  std::map<int64_t, OpenEpoch> epochs_;
  struct Assignment {
    int64_t epoch = 0;
    int64_t task = 0;
  };
  std::map<uint64_t, Assignment> assigned_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_EVALUATION_H_

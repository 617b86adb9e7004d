#include "chief/core/records.h"

namespace lagrange {
namespace {

// One overload to a table: a record of a new kind that nobody folds in doesn't compile.
struct Folder {
  Durable* durable;

  void operator()(const CounterRecord& record) { durable->counters[record.name] = record.value; }
  void operator()(const MemberRecord& record) { durable->members[record.incarnation] = record; }
  void operator()(const LeaseRecord& record) { durable->leases[{record.epoch, record.lease}] = record; }
  void operator()(const BatchRecord& record) { durable->batches[{record.epoch, record.lease, record.batch}] = record; }
  void operator()(const EvaluationRecord& record) {
    durable->evaluations[{record.epoch, record.first_record}] = record;
  }
  void operator()(const EpochRecord& record) { durable->epochs[record.epoch] = record; }
  void operator()(const CheckpointRecord& record) { durable->checkpoints[record.cut] = record; }
  void operator()(const ShardMapRecord& record) { durable->map = record.map; }
  void operator()(const ModelRecord& record) {
    durable->has_model = true;
    durable->model = record;
  }
  void operator()(const EndRecord& record) {
    durable->ended = true;
    durable->end = record;
  }
};

}  // namespace

void Durable::Apply(const Record& record) { std::visit(Folder{this}, record); }

}  // namespace lagrange

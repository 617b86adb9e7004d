#include "chief/record_writer.h"

#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "chief/record_names.h"
#include "common/status.h"

namespace lagrange {
namespace {

constexpr char kPutCounter[] =
    "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value "
    "WHERE excluded.value >= counters.value";
constexpr char kGetCounter[] = "SELECT value FROM counters WHERE name = ?";
constexpr char kPutMember[] = "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kPutLease[] = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?)";
constexpr char kPutBatch[] = "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING";
constexpr char kGetBatch[] =
    "SELECT state, cut, incarnation, example_count, loss_sum, reason FROM batches "
    "WHERE epoch = ? AND lease = ? AND batch = ?";
constexpr char kPutEvaluation[] = "INSERT OR REPLACE INTO evaluations VALUES (?, ?, ?, ?, ?)";
constexpr char kPutEpoch[] = "INSERT OR REPLACE INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
constexpr char kPutCheckpoint[] = "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)";
constexpr char kPutShardMap[] = "INSERT OR REPLACE INTO shard_map VALUES (1, ?, ?)";
constexpr char kPutModel[] = "INSERT OR REPLACE INTO model VALUES (1, ?, ?)";
constexpr char kDropVariables[] = "DELETE FROM variables";
constexpr char kPutVariable[] = "INSERT INTO variables VALUES (?, ?, ?, ?)";
constexpr char kPutEnd[] = "INSERT OR REPLACE INTO job_end VALUES (1, ?, ?)";

bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

absl::Status RecordWriter::Write(const Record& record) {
  return std::visit([this](const auto& one) { return WriteOne(one); }, record);
}

absl::StatusOr<Statement*> RecordWriter::Prepared(const char* sql) {
  auto found = prepared_.find(sql);
  if (found == prepared_.end()) {
    ASSIGN_OR_RETURN(Statement statement, database_->Prepare(sql));
    found = prepared_.emplace(sql, std::move(statement)).first;
  }
  return &found->second;
}

absl::Status RecordWriter::WriteOne(const CounterRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutCounter));
  RETURN_IF_ERROR(put->BindText(record.name).Bind(record.value).Run());
  if (database_->changed_rows() == 1) return absl::OkStatus();
  ASSIGN_OR_RETURN(Statement* const get, Prepared(kGetCounter));
  ASSIGN_OR_RETURN(const bool found, get->BindText(record.name).Next());
  const uint64_t kept = found ? get->Unsigned(0) : 0;
  if (found) RETURN_IF_ERROR(get->Next().status());
  return absl::FailedPreconditionError(
      absl::StrCat(database_->path(), ": counter ", record.name, ": expected at least ", kept, ", got ", record.value));
}

absl::Status RecordWriter::WriteOne(const MemberRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutMember));
  return put->Bind(record.incarnation)
      .Bind(static_cast<int>(record.role))
      .Bind(record.task_index)
      .Bind(record.process_id)
      .BindText(record.address)
      .BindText(record.host)
      .BindText(NameOf(record.state))
      .Bind(record.membership_sequence_reserved)
      .Run();
}

absl::Status RecordWriter::WriteOne(const LeaseRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutLease));
  put->Bind(record.epoch).Bind(record.lease).Bind(record.holder).Bind(record.grant_sequence).Bind(record.start_clock);
  return put->Bind(record.retired ? 1 : 0).Run();
}

absl::Status RecordWriter::WriteOne(const BatchRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutBatch));
  put->Bind(record.epoch).Bind(record.lease).Bind(record.batch).BindText(NameOf(record.state)).Bind(record.cut);
  put->Bind(record.incarnation).Bind(record.example_count).Bind(record.loss_sum).BindText(record.reason);
  RETURN_IF_ERROR(put->Run());
  return database_->changed_rows() == 1 ? absl::OkStatus() : CheckSameBatch(record);
}

absl::Status RecordWriter::CheckSameBatch(const BatchRecord& record) {
  ASSIGN_OR_RETURN(Statement* const get, Prepared(kGetBatch));
  ASSIGN_OR_RETURN(const bool found, get->Bind(record.epoch).Bind(record.lease).Bind(record.batch).Next());
  const bool same = found && get->Bytes(0) == NameOf(record.state) && get->Unsigned(1) == record.cut &&
                    get->Unsigned(2) == record.incarnation && get->Int(3) == record.example_count &&
                    SameNumber(get->Real(4), record.loss_sum) && get->Bytes(5) == record.reason;
  if (found) RETURN_IF_ERROR(get->Next().status());
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(database_->path(), ": batch ", record.batch, " of lease ",
                                                    record.lease, ", epoch ", record.epoch,
                                                    ": expected to be settled once, got a second, different record"));
}

absl::Status RecordWriter::WriteOne(const EvaluationRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutEvaluation));
  put->Bind(record.epoch).Bind(record.first_record).Bind(record.example_count).Bind(record.correct_count);
  return put->Bind(record.loss_sum).Run();
}

absl::Status RecordWriter::WriteOne(const EpochRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutEpoch));
  const EpochReport& report = record.report;
  put->Bind(record.epoch).Bind(record.cut).Bind(record.evaluated ? 1 : 0).Bind(record.checkpointed ? 1 : 0);
  put->Bind(report.examples_done()).Bind(report.examples_skipped()).Bind(report.training_loss());
  put->Bind(report.test_loss()).Bind(report.test_accuracy()).Bind(report.examples_per_second());
  put->Bind(report.staleness_mean()).Bind(report.staleness_p99()).Bind(report.staleness_clocks_max());
  return put->Bind(report.seconds()).Bind(report.epoch()).Run();
}

absl::Status RecordWriter::WriteOne(const CheckpointRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutCheckpoint));
  put->Bind(record.cut).Bind(record.epoch).BindText(record.directory);
  return put->BindText(NameOf(record.state)).Run();
}

absl::Status RecordWriter::WriteOne(const ShardMapRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutShardMap));
  const std::string map = record.map.SerializeAsString();
  return put->Bind(record.map.version()).BindBlob(map).Run();
}

absl::Status RecordWriter::WriteOne(const ModelRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutModel));
  RETURN_IF_ERROR(put->Bind(record.train_records).Bind(record.test_records).Run());
  ASSIGN_OR_RETURN(Statement* const drop, Prepared(kDropVariables));
  RETURN_IF_ERROR(drop->Run());
  ASSIGN_OR_RETURN(Statement* const put_variable, Prepared(kPutVariable));
  int64_t position = 0;
  for (const VariableSpec& variable : record.variables) {
    const std::string shape = absl::StrJoin(variable.shape(), ",");
    const std::string spec = variable.SerializeAsString();
    put_variable->Bind(position++).BindText(variable.name()).BindText(shape).BindBlob(spec);
    RETURN_IF_ERROR(put_variable->Run());
  }
  return absl::OkStatus();
}

absl::Status RecordWriter::WriteOne(const EndRecord& record) {
  ASSIGN_OR_RETURN(Statement* const put, Prepared(kPutEnd));
  return put->Bind(static_cast<int64_t>(record.code)).BindText(record.reason).Run();
}

}  // namespace lagrange

// Writes each kind of record of chief/core/records.h into its table, by statements compiled once.
//
// For chief/store.cc. Caller synchronizes and brackets the calls in a transaction. Borrows the database. Blocks on the
// disk. Errors are SQLite's (chief/sqlite.h), and FailedPrecondition for a record that would break a rule of
// chief/store.h.

#ifndef CHIEF_RECORD_WRITER_H_
#define CHIEF_RECORD_WRITER_H_

#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "chief/core/records.h"
#include "chief/sqlite.h"

namespace lagrange {

class RecordWriter {
 public:
  explicit RecordWriter(Database* database) : database_(database) {}

  absl::Status Write(const Record& record);

 private:
  absl::StatusOr<Statement*> Prepared(const char* sql);
  absl::Status WriteOne(const CounterRecord& record);
  absl::Status WriteOne(const MemberRecord& record);
  absl::Status WriteOne(const LeaseRecord& record);
  absl::Status WriteOne(const BatchRecord& record);
  absl::Status WriteOne(const EvaluationRecord& record);
  absl::Status WriteOne(const EpochRecord& record);
  absl::Status WriteOne(const CheckpointRecord& record);
  absl::Status WriteOne(const ShardMapRecord& record);
  absl::Status WriteOne(const ModelRecord& record);
  absl::Status WriteOne(const EndRecord& record);
  absl::Status CheckSameBatch(const BatchRecord& record);

  Database* database_;
  // By the address of the statement's text, a constant.
  std::map<const char*, Statement> prepared_;
};

}  // namespace lagrange

#endif  // CHIEF_RECORD_WRITER_H_

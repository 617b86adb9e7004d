// Reads the ledger's tables into a Durable.
//
// For chief/store.cc. Caller synchronizes. Blocks on the disk. Batches of epochs that are complete, and evaluations of
// epochs that are evaluated, stay in the file: their epochs hold the sums. DataLoss names the table and the row of a
// value that can't be read.

#ifndef CHIEF_RECORD_READER_H_
#define CHIEF_RECORD_READER_H_

#include "absl/status/statusor.h"
#include "chief/core/records.h"
#include "chief/sqlite.h"

namespace lagrange {

// All but `job`.
absl::StatusOr<Durable> ReadRecords(Database* database);

}  // namespace lagrange

#endif  // CHIEF_RECORD_READER_H_

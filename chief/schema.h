// The SQL of the ledger's file: the tables of chief/core/records.h, one to each struct. docs/ledger.md explains them.
//
// uint64 values are kept as SQLite's signed 64-bit integers, bit for bit. A REAL that isn't a number is kept as NULL,
// which is what SQLite makes of NaN. A change of this text raises kSchemaVersion.

#ifndef CHIEF_SCHEMA_H_
#define CHIEF_SCHEMA_H_

namespace lagrange {

// In the file's user_version.
inline constexpr int kSchemaVersion = 2;
// In the file's application_id: "LGRG".
inline constexpr int kLedgerApplicationId = 0x4c475247;

inline constexpr char kSchema[] = R"sql(
CREATE TABLE job (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  spec BLOB NOT NULL,
  restore_directory TEXT,
  restore BLOB
) STRICT;
CREATE TABLE counters (
  name TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) STRICT;
CREATE TABLE members (
  incarnation INTEGER PRIMARY KEY,
  role INTEGER NOT NULL,
  task_index INTEGER NOT NULL,
  process_id INTEGER NOT NULL,
  address TEXT NOT NULL,
  host TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('live', 'left', 'evicted')),
  membership_sequence_reserved INTEGER NOT NULL
) STRICT;
CREATE TABLE leases (
  epoch INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  holder INTEGER NOT NULL,
  grant_sequence INTEGER NOT NULL,
  start_clock INTEGER NOT NULL,
  retired INTEGER NOT NULL CHECK (retired IN (0, 1)),
  PRIMARY KEY (epoch, lease)
) STRICT, WITHOUT ROWID;
CREATE TABLE batches (
  epoch INTEGER NOT NULL,
  lease INTEGER NOT NULL,
  batch INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('done', 'skipped')),
  cut INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  example_count INTEGER NOT NULL CHECK (example_count >= 0),
  loss_sum REAL,
  reason TEXT NOT NULL,
  PRIMARY KEY (epoch, lease, batch)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER batches_are_settled_once BEFORE UPDATE ON batches
BEGIN
  SELECT RAISE(ABORT, 'a settled batch is never changed');
END;
CREATE TABLE evaluations (
  epoch INTEGER NOT NULL,
  first_record INTEGER NOT NULL,
  example_count INTEGER NOT NULL,
  correct_count INTEGER NOT NULL,
  loss_sum REAL,
  PRIMARY KEY (epoch, first_record)
) STRICT, WITHOUT ROWID;
CREATE TABLE epochs (
  epoch INTEGER PRIMARY KEY,
  cut INTEGER NOT NULL,
  evaluated INTEGER NOT NULL CHECK (evaluated IN (0, 1)),
  checkpointed INTEGER NOT NULL CHECK (checkpointed IN (0, 1)),
  examples_done INTEGER NOT NULL,
  examples_skipped INTEGER NOT NULL,
  training_loss REAL,
  test_loss REAL,
  test_accuracy REAL,
  examples_per_second REAL,
  staleness_mean REAL,
  staleness_p99 REAL,
  staleness_clocks_max INTEGER NOT NULL,
  seconds REAL,
  number INTEGER NOT NULL
) STRICT;
CREATE TABLE checkpoints (
  cut INTEGER PRIMARY KEY,
  epoch INTEGER NOT NULL,
  directory TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('listed', 'deleted'))
) STRICT;
CREATE TABLE shard_map (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL,
  map BLOB NOT NULL
) STRICT;
CREATE TABLE model (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  train_records INTEGER NOT NULL,
  test_records INTEGER NOT NULL
) STRICT;
CREATE TABLE variables (
  position INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  shape TEXT NOT NULL,
  spec BLOB NOT NULL
) STRICT;
CREATE TABLE job_end (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  code INTEGER NOT NULL CHECK (code BETWEEN 0 AND 16),
  reason TEXT NOT NULL
) STRICT;
)sql";

}  // namespace lagrange

#endif  // CHIEF_SCHEMA_H_

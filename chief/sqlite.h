// SQLite with values in, values out and errors as absl::Status: what the store needs of it.
//
// Caller synchronizes. A Database owns its connection, a Statement borrows the Database and owns its compiled form;
// both block on the disk. Errors begin with the file's path: DataLoss (damaged, or not a database), ResourceExhausted
// (disk full), FailedPrecondition (a constraint), Internal (the rest).

#ifndef CHIEF_SQLITE_H_
#define CHIEF_SQLITE_H_

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lagrange {

class Database;

// Bind all parameters in order, then Run (no rows) or Next until it is false. Every Run, and a Next that is false or
// fails, makes it ready for the next use. An error of a Bind comes out of the Run or Next behind it.
class Statement {
 public:
  Statement(Statement&&) = default;
  Statement& operator=(Statement&&) = default;

  Statement& Bind(int64_t value);
  Statement& Bind(uint64_t value) { return Bind(static_cast<int64_t>(value)); }
  Statement& Bind(int value) { return Bind(static_cast<int64_t>(value)); }
  // NaN becomes NULL.
  Statement& Bind(double value);
  // The bytes are read until the statement is reset, so they must live until then.
  Statement& BindText(absl::string_view value);
  Statement& BindBlob(absl::string_view value);
  Statement& BindNull();

  absl::Status Run();
  absl::StatusOr<bool> Next();

  // Of the row that Next came to; columns from 0.
  int64_t Int(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  uint64_t Unsigned(int column) const { return static_cast<uint64_t>(Int(column)); }
  // NULL becomes NaN.
  double Real(int column) const;
  std::string Bytes(int column) const;
  bool IsNull(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  Statement(const Database* database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  Statement& Note(int code);
  void Reset();

  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int next_parameter_ = 1;
  int bind_error_ = SQLITE_OK;
};

class Database {
 public:
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::string& path() const { return path_; }
  // Statements without parameters and rows, separated by semicolons.
  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  // First column of the first row of a query that has one.
  absl::StatusOr<int64_t> QueryInt(absl::string_view sql);
  absl::StatusOr<std::string> QueryText(absl::string_view sql);
  // Rows that the last statement inserted or changed.
  int64_t changed_rows() const { return sqlite3_changes(connection_.get()); }

  absl::Status Error(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* connection) const { sqlite3_close(connection); }
  };
  Database(std::string path, sqlite3* connection) : path_(std::move(path)), connection_(connection) {}

  std::string path_;
  std::unique_ptr<sqlite3, Close> connection_;
};

}  // namespace lagrange

#endif  // CHIEF_SQLITE_H_

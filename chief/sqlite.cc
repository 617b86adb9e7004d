#include "chief/sqlite.h"

#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace lagrange {

Statement& Statement::Note(int code) {
  if (code != SQLITE_OK && bind_error_ == SQLITE_OK) bind_error_ = code;
  ++next_parameter_;
  return *this;
}

Statement& Statement::Bind(int64_t value) { return Note(sqlite3_bind_int64(statement_.get(), next_parameter_, value)); }

Statement& Statement::Bind(double value) { return Note(sqlite3_bind_double(statement_.get(), next_parameter_, value)); }

Statement& Statement::BindText(absl::string_view value) {
  return Note(
      sqlite3_bind_text64(statement_.get(), next_parameter_, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8));
}

Statement& Statement::BindBlob(absl::string_view value) {
  // A null pointer would bind NULL.
  const char* data = value.empty() ? "" : value.data();
  return Note(sqlite3_bind_blob64(statement_.get(), next_parameter_, data, value.size(), SQLITE_STATIC));
}

Statement& Statement::BindNull() { return Note(sqlite3_bind_null(statement_.get(), next_parameter_)); }

absl::Status Statement::Run() {
  ASSIGN_OR_RETURN(const bool has_row, Next());
  if (has_row) Reset();
  return absl::OkStatus();
}

absl::StatusOr<bool> Statement::Next() {
  const int code = bind_error_ == SQLITE_OK ? sqlite3_step(statement_.get()) : bind_error_;
  if (code == SQLITE_ROW) return true;
  // The error's text is lost by the reset.
  const absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : database_->Error(code);
  Reset();
  RETURN_IF_ERROR(status);
  return false;
}

void Statement::Reset() {
  sqlite3_reset(statement_.get());
  next_parameter_ = 1;
  bind_error_ = SQLITE_OK;
}

double Statement::Real(int column) const {
  if (IsNull(column)) return std::numeric_limits<double>::quiet_NaN();
  return sqlite3_column_double(statement_.get(), column);
}

std::string Statement::Bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  const int size = sqlite3_column_bytes(statement_.get(), column);
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  sqlite3* connection = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &connection, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                      /*zVfs=*/nullptr);
  std::unique_ptr<Database> database(new Database(path, connection));
  if (code != SQLITE_OK) return database->Error(code);
  // Somebody reading the ledger with the sqlite3 shell holds locks for moments.
  sqlite3_busy_timeout(connection, 10000);
  return database;
}

absl::Status Database::Execute(const char* sql) {
  const int code = sqlite3_exec(connection_.get(), sql, /*callback=*/nullptr, /*context=*/nullptr, /*errmsg=*/nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> Database::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(connection_.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, /*pzTail=*/nullptr);
  if (code != SQLITE_OK) return Error(code);
  return Statement(this, statement);
}

absl::StatusOr<int64_t> Database::QueryInt(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool has_row, statement.Next());
  return has_row ? statement.Int(0) : 0;
}

absl::StatusOr<std::string> Database::QueryText(absl::string_view sql) {
  ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
  ASSIGN_OR_RETURN(const bool has_row, statement.Next());
  return has_row ? statement.Bytes(0) : std::string();
}

absl::Status Database::Error(int code) const {
  // Without a connection (out of memory) there is only the code's own text.
  const char* text = connection_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(connection_.get());
  const std::string message = absl::StrCat(path_, ": ", text, " (SQLite code ", code, ")");
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(absl::StrCat(message, ": the file is damaged or no ledger"));
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(message);
    case SQLITE_CONSTRAINT:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace lagrange

#include "chief/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "chief/record_reader.h"
#include "chief/record_writer.h"
#include "chief/schema.h"
#include "chief/sqlite.h"
#include "common/file_system.h"
#include "common/job_config.h"
#include "common/status.h"

namespace lagrange {
namespace {

// Held for the life of the process; the kernel frees it at any death.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  DirectoryLock(DirectoryLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock() {
    if (fd_ >= 0) ::close(fd_);
  }

  absl::Status Take(const std::string& directory) {
    const std::string path = directory + "/lock";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd_ < 0) return absl::InternalError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
    if (errno != EWOULDBLOCK) {
      return absl::InternalError(absl::StrCat(path, ": cannot lock: ", std::strerror(errno)));
    }
    return absl::FailedPreconditionError(
        absl::StrCat(directory, ": another chief that is running uses this state directory (it holds ", path,
                     "); stop it first, or choose another --state_dir"));
  }

 private:
  int fd_ = -1;
};

class SqliteStore final : public Store {
 public:
  SqliteStore(DirectoryLock lock, std::unique_ptr<Database> database, bool is_new)
      : lock_(std::move(lock)), database_(std::move(database)), is_new_(is_new), writer_(database_.get()) {}

  bool is_new() const override { return is_new_; }

  absl::Status Commit(absl::Span<const Record> records) override {
    if (records.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
    for (const Record& record : records) {
      if (const absl::Status status = writer_.Write(record); !status.ok()) {
        // The write's error is the one to tell; SQLite itself rolls back what is left open.
        database_->Execute("ROLLBACK").IgnoreError();
        return status;
      }
    }
    return database_->Execute("COMMIT");
  }

  absl::StatusOr<Durable> Load() override {
    ASSIGN_OR_RETURN(Durable durable, ReadRecords(database_.get()));
    ASSIGN_OR_RETURN(Statement rows, database_->Prepare("SELECT spec FROM job"));
    ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row || !durable.job.ParseFromString(rows.Bytes(0))) {
      return absl::DataLossError(absl::StrCat(database_->path(), ": table job, column spec: cannot be read"));
    }
    return durable;
  }

  absl::Status SaveJob(const JobSpec& job) override {
    ASSIGN_OR_RETURN(Statement put, database_->Prepare("UPDATE job SET spec = ?"));
    const std::string spec = job.SerializeAsString();
    return put.BindBlob(spec).Run();
  }

  absl::StatusOr<std::optional<RestoreSource>> LoadRestore() override {
    ASSIGN_OR_RETURN(Statement rows, database_->Prepare("SELECT restore FROM job WHERE restore IS NOT NULL"));
    ASSIGN_OR_RETURN(const bool has_row, rows.Next());
    if (!has_row) return std::optional<RestoreSource>();
    RestoreSource restore;
    if (!restore.ParseFromString(rows.Bytes(0))) {
      return absl::DataLossError(absl::StrCat(database_->path(), ": table job, column restore: cannot be read"));
    }
    return std::optional<RestoreSource>(std::move(restore));
  }

  absl::Status SaveRestore(const RestoreSource& restore) override {
    ASSIGN_OR_RETURN(Statement put, database_->Prepare("UPDATE job SET restore_directory = ?, restore = ?"));
    const std::string bytes = restore.SerializeAsString();
    return put.BindText(restore.directory()).BindBlob(bytes).Run();
  }

 private:
  DirectoryLock lock_;
  std::unique_ptr<Database> database_;
  bool is_new_;
  RecordWriter writer_;
};

absl::Status PutJob(Database* database, const JobSpec& job) {
  ASSIGN_OR_RETURN(Statement put, database->Prepare("INSERT OR REPLACE INTO job VALUES (1, ?, ?, ?, NULL, NULL)"));
  const std::string digest = JobDigest(job);
  const std::string spec = job.SerializeAsString();
  return put.BindText(job.name()).BindText(digest).BindBlob(spec).Run();
}

absl::Status CreateSchema(Database* database, const JobSpec& job) {
  RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  RETURN_IF_ERROR(database->Execute(kSchema));
  RETURN_IF_ERROR(PutJob(database, job));
  RETURN_IF_ERROR(database->Execute(absl::StrCat("PRAGMA application_id = ", kLedgerApplicationId,
                                                 "; PRAGMA user_version = ", kSchemaVersion, "; COMMIT")
                                        .c_str()));
  return absl::OkStatus();
}

// Whether the file is a ledger of this schema version and undamaged.
absl::Status CheckFile(Database* database) {
  ASSIGN_OR_RETURN(const int64_t application, database->QueryInt("PRAGMA application_id"));
  ASSIGN_OR_RETURN(const int64_t version, database->QueryInt("PRAGMA user_version"));
  if (application != kLedgerApplicationId) {
    return absl::DataLossError(absl::StrCat(database->path(), ": expected a ledger (application_id ",
                                            kLedgerApplicationId, "), got ", application));
  }
  if (version != kSchemaVersion) {
    return absl::FailedPreconditionError(absl::StrCat(database->path(), ": the ledger's schema version: expected ",
                                                      kSchemaVersion, ", got ", version,
                                                      "; use the build that wrote it, or another --state_dir"));
  }
  ASSIGN_OR_RETURN(const std::string check, database->QueryText("PRAGMA quick_check(1)"));
  if (check != "ok") return absl::DataLossError(absl::StrCat(database->path(), ": the file is damaged: ", check));
  return absl::OkStatus();
}

absl::Status CheckJob(Database* database, const std::string& directory, const JobSpec& job) {
  ASSIGN_OR_RETURN(const std::string name, database->QueryText("SELECT name FROM job"));
  ASSIGN_OR_RETURN(const std::string digest, database->QueryText("SELECT digest FROM job"));
  const std::string expected_digest = JobDigest(job);
  if (name == job.name() && digest == expected_digest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      directory, ": this is the state of another job: expected job \"", job.name(), "\" with digest ", expected_digest,
      ", got job \"", name, "\" with digest ", digest,
      "; give the job file that the state is of, or choose another --state_dir (to begin anew, remove this one)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& directory, const JobSpec& job) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  DirectoryLock lock;
  RETURN_IF_ERROR(lock.Take(directory));
  ASSIGN_OR_RETURN(std::unique_ptr<Database> database, Database::Open(directory + "/ledger.sqlite"));
  RETURN_IF_ERROR(database->Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"));
  ASSIGN_OR_RETURN(const int64_t tables, database->QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0) {
    RETURN_IF_ERROR(CreateSchema(database.get(), job));
    RETURN_IF_ERROR(SyncDirectory(directory));
  }
  RETURN_IF_ERROR(CheckFile(database.get()));
  // The first transaction of every chief raises the term. Before it nothing hangs on the job: one that was refused for
  // its flags or its checkpoint may be mended and started again here.
  ASSIGN_OR_RETURN(const int64_t counters, database->QueryInt("SELECT count(*) FROM counters"));
  const bool is_new = counters == 0;
  RETURN_IF_ERROR(is_new ? PutJob(database.get(), job) : CheckJob(database.get(), directory, job));
  return std::make_unique<SqliteStore>(std::move(lock), std::move(database), is_new);
}

}  // namespace lagrange

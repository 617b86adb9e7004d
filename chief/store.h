// The chief's durable memory: STATE_DIR/ledger.sqlite, and STATE_DIR/lock that keeps a second chief out.
//
// For the daemon. Caller synchronizes (one thread commits). Blocks on the disk: when Commit returns, its records
// survive the loss of power (WAL with synchronous=FULL). Owns the lock until it is destroyed; the kernel frees it when
// the process dies.
//
// Rules that hold whoever calls (chief/store_test.cc):
//  1. A batch is settled once: the same record again is harmless, another one for its key fails the whole transaction.
//  2. A counter never falls.

#ifndef CHIEF_STORE_H_
#define CHIEF_STORE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "chief/core/records.h"
#include "proto/control_plane.pb.h"
#include "proto/job.pb.h"

namespace lagrange {

// What the service needs of a store; tests put one here that fails.
class RecordCommitter {
 public:
  virtual ~RecordCommitter() = default;
  // All or none. After an error the store must not be used further.
  virtual absl::Status Commit(absl::Span<const Record> records) = 0;
};

class Store : public RecordCommitter {
 public:
  // Opens or creates the state of `job` (defaults filled in). FailedPrecondition: another live chief has the directory,
  // the state is of another job (names and digests given) or of another schema version. DataLoss: the file is damaged.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& directory, const JobSpec& job);

  // True when this Open created the state, or when nothing has been committed since: the job hasn't begun.
  virtual bool is_new() const = 0;
  // Its job is the one that was saved last, which may differ from Open's where the digest doesn't look.
  virtual absl::StatusOr<Durable> Load() = 0;
  // The job as this start runs it, once the core has accepted it. REQUIRES: of Open's name and digest.
  virtual absl::Status SaveJob(const JobSpec& job) = 0;

  // The checkpoint that the job began from, kept whole so that a restarted chief needs neither its files nor the flag.
  virtual absl::StatusOr<std::optional<RestoreSource>> LoadRestore() = 0;
  virtual absl::Status SaveRestore(const RestoreSource& restore) = 0;
};

}  // namespace lagrange

#endif  // CHIEF_STORE_H_

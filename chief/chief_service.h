// The chief's gRPC service: carries calls to ChiefCore and its effects out, in the order that chief/core/chief.h
// demands.
//
// One thread of decisions runs the core. It takes all events that wait (calls, answers of ps, finished manifests, the
// timer), runs them through the core, commits all their records in one transaction, and only then sends the ps
// commands, answers the calls and does the actions. So many calls share one sync of the disk, and no answer leaves
// before its records are durable. When a commit fails, nothing of that transaction is answered or sent; the calls end
// as Unavailable, and the exit status says why.
//
// Thread-safe. Owns the server, the threads and the core; borrows store and clock. Listen binds at once, so that a port
// in use is known before anything is committed; calls wait until Begin.
//
// Locks: ChiefServer's alone, held for the queue and the exit only, never while the core, the store or gRPC is called.

#ifndef CHIEF_CHIEF_SERVICE_H_
#define CHIEF_CHIEF_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "chief/core/chief.h"
#include "chief/store.h"
#include "common/clock.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

struct ChiefServerOptions {
  // "HOST:PORT"; port 0 is the kernel's choice.
  std::string listen_address;
  // Lines for people; must be thread-safe.
  std::function<void(absl::string_view line)> on_progress;
  const Clock* clock = nullptr;
  // How often to say who is missing while the job waits for its members.
  absl::Duration waiting_line_interval = absl::Seconds(3);
};

class ChiefServer {
 public:
  struct Exit {
    // Why the job failed, or OK.
    absl::Status status;
    // As the core last knew it, with the report.
    JobStatus job;
  };

  // InvalidArgument: not an address, or not of this machine; FailedPrecondition: another process listens there; and the
  // other errors of common/listening.h. Each names the address.
  static absl::StatusOr<std::unique_ptr<ChiefServer>> Listen(const ChiefServerOptions& options);
  virtual ~ChiefServer() = default;

  // With the port that was bound.
  virtual const std::string& bound_address() const = 0;
  // `first` are the effects of NewChiefCore; their records are durable when it returns OK. At most once; after an error
  // (of the store) nothing has been sent, and the server can only be destroyed.
  virtual absl::Status Begin(std::unique_ptr<ChiefCore> core, ChiefEffects first, RecordCommitter* store) = 0;
  // REQUIRES: Begin was OK. Safe to call from several threads and repeatedly.
  virtual void RequestStop() = 0;
  // REQUIRES: Begin was OK. Blocks until the core or a failed commit ends the job.
  virtual Exit WaitForExit() = 0;
};

}  // namespace lagrange

#endif  // CHIEF_CHIEF_SERVICE_H_

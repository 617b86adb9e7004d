// A ps process but for its flags: the gRPC server around an engine, registration, heartbeats, the end.
//
// Run blocks the thread that calls it; RequestStop is thread-safe. Borrows engine and clock, owns server and
// services. Starts no thread of its own: gRPC's threads carry commands and the data path, Run's the heartbeats.
//
// The end, in this order: no command is admitted any more; the data path's streams are closed; calls under way are
// answered (a checkpoint's file that is being written is finished) or, after kStopTimeout, cancelled; the port is free.
//
// Lock order of the role: PsService's disk lock, then the engine's (ps/core/engine.h); DataPlaneServer's own
// (ps/data_plane_server.h); the locks of ChiefLink, PsService's control state and bad pushes are leaves.

#ifndef PS_PS_DAEMON_H_
#define PS_PS_DAEMON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/address.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "ps/chief_link.h"
#include "ps/core/engine.h"
#include "ps/data_plane_server.h"
#include "ps/ps_service.h"

namespace lagrange {

struct PsDaemonOptions {
  // The chief's address and what to do while it isn't there.
  ChiefLinkOptions link;
  // HOST:PORT; port 0 is the kernel's choice. A wildcard listens on every interface, of IPv6 and IPv4.
  std::string listen = "[::]:0";
  // HOST:PORT that others are told; port 0 stands for the port listened on. Empty: the host of `listen` or, when that
  // is a wildcard, this machine's address on the way to the chief.
  std::string advertise_address;
  // What the chief must agree with, when given.
  std::optional<int32_t> task_index;
  std::optional<int32_t> ps_count;
  std::optional<int32_t> worker_count;
};

class PsDaemon {
 public:
  // Calls under way at the end get so long; then they are cancelled. A worker's push takes milliseconds, and a file
  // that is being written isn't cut off by it.
  static constexpr absl::Duration kStopTimeout = absl::Seconds(2);

  // `engine` and `clock` outlive this. `say` gets lines for people, on Run's thread.
  PsDaemon(PsDaemonOptions options, Engine* engine, const Clock* clock, ChiefLink::Say say);
  ~PsDaemon();
  PsDaemon(const PsDaemon&) = delete;
  PsDaemon& operator=(const PsDaemon&) = delete;

  // From listening to the end of the job. REQUIRES: called once.
  ProcessEnd Run();

  // SIGTERM: tells the chief, then ends Run with exit status 0.
  void RequestStop();

 private:
  absl::Status StartServer();
  void StopServer();
  // How others reach this ps; fails as ChiefLink::AddressSource says.
  absl::StatusOr<std::string> ReachableAddress() const;
  RegisterRequest Registration() const;
  ProcessEnd Serve(const RegisterResponse& registration);
  HeartbeatRequest Beat(const RegisterResponse& registration);
  void OnBadPush(const RequestHeader& request, const std::string& message);

  const PsDaemonOptions options_;
  Engine* const engine_;
  const ChiefLink::Say say_;
  // That the server listens on, once it does.
  Address listening_;

  ChiefLink link_;
  DataPlaneServer data_plane_;
  PsService service_;
  std::unique_ptr<grpc::Server> server_;

  absl::Mutex mutex_;
  int64_t bad_pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string bad_push_message_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lagrange

#endif  // PS_PS_DAEMON_H_

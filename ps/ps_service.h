// The chief's commands to a ps, as a gRPC service: hands them to the engine, and does what of them touches a disk.
//
// Thread-safe; each command runs in the thread of its RPC. WriteCheckpoint and a restore hold that thread for as long
// as the disk takes, one of them at a time; a repeat of a command that has succeeded is answered from memory, so a
// chief that lost an answer causes no second write of gigabytes. Borrows the engine. Decides nothing: what a command
// means, and whether it may be obeyed, is the engine's.
//
// Commands that come before the ps knows its incarnation wait, at most kIdentityTimeout: the chief commits a
// registration and may command at once, ahead of its own answer to the registration.

#ifndef PS_PS_SERVICE_H_
#define PS_PS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/control_plane.grpc.pb.h"
#include "ps/core/engine.h"

namespace lagrange {

// Longer than a registration's answer takes, shorter than any command's deadline that matters.
inline constexpr absl::Duration kIdentityTimeout = absl::Seconds(5);

class PsService final : public PsControlService::Service {
 public:
  struct Callbacks {
    // Sends what the engine set free by a command.
    std::function<void(PsEffects)> deliver;
    // The chief ended the job, for `reason` if it isn't empty. The answer to the chief is sent when this has returned,
    // so it must only take note.
    std::function<void(std::string reason)> shut_down;
  };

  // `engine` outlives this.
  PsService(Engine* engine, Callbacks callbacks);

  // The engine has been given its identity: commands may come.
  void AdmitCommands();

  // Commands that wait are answered Unavailable, as are later ones. Those under way finish.
  void Stop();

  grpc::Status Execute(grpc::ServerContext* context, const PsCommand* command, PsCommandResult* result) override;

  // Execute without gRPC.
  absl::StatusOr<PsCommandResult> Handle(const PsCommand& command);

 private:
  absl::Status AwaitIdentity();
  absl::StatusOr<PsCommandResult> Forward(const PsCommand& command);
  absl::StatusOr<PsCommandResult> WriteCheckpointFile(const PsCommand& command) ABSL_LOCKS_EXCLUDED(disk_mutex_);
  absl::StatusOr<PsCommandResult> InstallFromCheckpoint(const PsCommand& command) ABSL_LOCKS_EXCLUDED(disk_mutex_);

  Engine* const engine_;
  const Callbacks callbacks_;

  // Never held while another lock is taken.
  absl::Mutex mutex_;
  bool admitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  // Held while a disk command runs; the engine's locks are taken under it.
  absl::Mutex disk_mutex_;
  // The last file that was written, and what for (generation and WriteCheckpoint).
  std::string written_for_ ABSL_GUARDED_BY(disk_mutex_);
  CheckpointFile written_ ABSL_GUARDED_BY(disk_mutex_);
  std::vector<std::string> written_slot_names_ ABSL_GUARDED_BY(disk_mutex_);
  // Generation and map version of the last restore that succeeded.
  std::string installed_for_ ABSL_GUARDED_BY(disk_mutex_);
};

}  // namespace lagrange

#endif  // PS_PS_SERVICE_H_

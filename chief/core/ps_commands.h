// The chief's commands to the ps that have no answer yet: numbers them, stamps them, sends them again.
//
// For the chief's core. Caller synchronizes. Owns copies of the commands. Commands are idempotent, so one that got no
// answer, or a failure that may pass, is simply sent again under its id. Invariant: an id leaves the table only through
// Take or Drop, so every command is answered in the end or its ps is gone.

#ifndef CHIEF_CORE_PS_COMMANDS_H_
#define CHIEF_CORE_PS_COMMANDS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "chief/core/chief.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class PsCommands {
 public:
  struct Options {
    uint64_t term = 0;
    uint64_t generation = 0;
    absl::Duration command_timeout;
    // WriteCheckpoint and InstallShards.
    absl::Duration disk_command_timeout;
  };

  explicit PsCommands(const Options& options);

  // Adds the command to effects, stamped, and keeps it until its answer is taken.
  void Send(const PsAddress& ps, PsCommand command, absl::Time now, ChiefEffects* effects);

  // The command that an answer belongs to; null for one that was answered before (answers may be repeated).
  const OutgoingPsCommand* Find(uint64_t command_id) const;
  // The answer has been dealt with.
  void Take(uint64_t command_id);
  // The command failed in a way that may pass: it goes out again after a pause.
  void RetryLater(uint64_t command_id, absl::Time now);

  // Sends again what is due.
  void Resend(absl::Time now, ChiefEffects* effects);
  // InfiniteFuture when nothing is outstanding.
  absl::Time next_resend() const;

  // Forgets all commands: the job has ended, only what is sent after this counts.
  void Drop();
  // Commands of this ps without an answer.
  int64_t OutstandingOf(int32_t ps_index) const;

  // Whether sending the command again can help: the ps or the network was away, or the ps isn't ready yet.
  // REQUIRES: Find(command_id) isn't null.
  bool MayPass(uint64_t command_id, const absl::Status& status) const;

 private:
  struct Outstanding {
    OutgoingPsCommand outgoing;
    absl::Time resend_at;
    int failures = 0;
  };

  Options options_;
  uint64_t next_id_;
  std::map<uint64_t, Outstanding> outstanding_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_PS_COMMANDS_H_

// Sends the chief's commands to the ps, each with its deadline, and hands every answer or failure back.
//
// Thread-safe; Send never blocks. Owns a channel to each ps, kept as long as its address stays. The destructor cancels
// the calls under way and waits until the last of them has been handed back (as Cancelled). It sends nothing again: the
// core decides that.

#ifndef CHIEF_PS_COMMAND_SENDER_H_
#define CHIEF_PS_COMMAND_SENDER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "chief/core/chief.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {

class PsCommandSender {
 public:
  // Called on gRPC's threads, possibly several at once.
  using OnResult = std::function<void(uint64_t command_id, absl::StatusOr<PsCommandResult> result)>;

  explicit PsCommandSender(OnResult on_result) : on_result_(std::move(on_result)) {}
  PsCommandSender(const PsCommandSender&) = delete;
  PsCommandSender& operator=(const PsCommandSender&) = delete;
  ~PsCommandSender();

  void Send(const OutgoingPsCommand& command);

 private:
  struct Peer {
    std::string address;
    std::shared_ptr<PsControlService::Stub> stub;
  };
  struct Call;

  std::shared_ptr<PsControlService::Stub> StubOf(int32_t ps_index, const std::string& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnDone(const std::shared_ptr<Call>& call, const absl::Status& status);
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_.empty(); }

  const OnResult on_result_;
  // Taken under no other lock; none is taken under it.
  absl::Mutex mutex_;
  std::map<int32_t, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  std::set<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lagrange

#endif  // CHIEF_PS_COMMAND_SENDER_H_

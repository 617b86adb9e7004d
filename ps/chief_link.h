// A ps's conversation with its chief: registration, heartbeats, goodbye.
//
// All calls but End are one thread's, the one that runs the ps; they block it. End is thread-safe and makes whatever
// blocks return. A chief that isn't there (yet, or for the moment: it may be started again) is tried for
// startup_timeout, with a line every notice_interval that says why. Each attempt after a failure has a channel of its
// own, which has neither a back-off nor a name's old address. Decides nothing: what a ps shall do is in the chief's
// answers; here they become the process's end.

#ifndef PS_CHIEF_LINK_H_
#define PS_CHIEF_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {

// 0: the job is complete, or the process was asked to stop. 1: it failed. 2: it was started with wrong settings.
struct ProcessEnd {
  int exit_status = 0;
  // Empty when there is nothing to explain.
  std::string reason;
};

struct ChiefLinkOptions {
  // HOST:PORT.
  std::string chief;
  absl::Duration startup_timeout = absl::Minutes(5);
  absl::Duration notice_interval = absl::Seconds(3);
  // Between two attempts to register.
  absl::Duration retry_interval = absl::Milliseconds(200);
  // Of one call; a chief that is busy answers well within it.
  absl::Duration call_timeout = absl::Seconds(5);
};

class ChiefLink {
 public:
  // Lines for people.
  using Say = std::function<void(const std::string& line)>;
  // Where others reach this ps. Unavailable or NotFound: not known yet, ask again.
  using AddressSource = std::function<absl::StatusOr<std::string>()>;

  // `clock` outlives this.
  ChiefLink(ChiefLinkOptions options, const Clock* clock, Say say);
  ChiefLink(const ChiefLink&) = delete;
  ChiefLink& operator=(const ChiefLink&) = delete;

  // Registers, which takes two calls: the first answer names the checkpoint directory, and the second call proves that
  // this process reads and writes the same one. `request` lacks address and directory_token.
  std::variant<RegisterResponse, ProcessEnd> Register(RegisterRequest request, const AddressSource& address);

  // Sends what `beat` makes every heartbeat_interval of the registration, until the chief, or End, says that it is
  // over. `beat` leaves incarnation and term to this.
  ProcessEnd BeatUntilEnd(const RegisterResponse& registration, const std::function<HeartbeatRequest()>& beat);

  // Tells the chief that this process goes, if it can be reached at once.
  void Leave(const RegisterResponse& registration, const ProcessEnd& end);

  // The first call decides what Register and BeatUntilEnd return.
  void End(ProcessEnd end);

  // Largest term that the chief has named.
  uint64_t term() const { return term_; }

 private:
  template <typename Request, typename Response>
  using Method = grpc::Status (ChiefService::Stub::*)(grpc::ClientContext*, const Request&, Response*);

  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const Request& request, absl::Duration timeout,
                    Response* response);
  absl::Status TryToRegister(const AddressSource& address, RegisterRequest* request, RegisterResponse* response);
  std::optional<ProcessEnd> OnHeartbeat(const HeartbeatResponse& response);
  std::optional<ProcessEnd> GiveUp(absl::Time since, const absl::Status& cause) const;
  // At once when it is another line than the last one, else every notice_interval.
  void Notice(const std::string& line);
  // False when End has been called.
  bool Pause(absl::Duration duration);
  std::optional<ProcessEnd> end() const;

  const ChiefLinkOptions options_;
  const Clock* const clock_;
  const Say say_;

  // Null after a failed call.
  std::unique_ptr<ChiefService::Stub> stub_;
  uint64_t term_ = 0;
  std::string last_notice_;
  absl::Time next_notice_ = absl::InfinitePast();

  // Taken under no other lock.
  mutable absl::Mutex mutex_;
  std::optional<ProcessEnd> end_ ABSL_GUARDED_BY(mutex_);
  // The call that End cancels.
  grpc::ClientContext* open_call_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace lagrange

#endif  // PS_CHIEF_LINK_H_

// The command line's view of a chief: one question, one answer, a deadline. Thread-safe.

#ifndef CLI_CHIEF_CONNECTION_H_
#define CLI_CHIEF_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/control_plane.grpc.pb.h"

namespace lagrange {

class ChiefConnection {
 public:
  explicit ChiefConnection(const std::string& address);

  // Unavailable or DeadlineExceeded name the address.
  absl::StatusOr<JobStatus> GetStatus(absl::Duration timeout);

 private:
  const std::string address_;
  std::unique_ptr<ChiefService::Stub> stub_;
};

}  // namespace lagrange

#endif  // CLI_CHIEF_CONNECTION_H_

#include "cli/chief_connection.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "proto/channel_arguments.h"

namespace lagrange {

ChiefConnection::ChiefConnection(const std::string& address)
    : address_(address),
      stub_(ChiefService::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), ClientChannelArguments()))) {}

absl::StatusOr<JobStatus> ChiefConnection::GetStatus(absl::Duration timeout) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  JobStatus status;
  const grpc::Status result = stub_->GetStatus(&context, GetStatusRequest(), &status);
  if (result.ok()) return status;
  return absl::Status(static_cast<absl::StatusCode>(result.error_code()),
                      absl::StrCat("no answer from a chief at ", address_, " within ", absl::FormatDuration(timeout),
                                   ": ", result.error_message()));
}

}  // namespace lagrange

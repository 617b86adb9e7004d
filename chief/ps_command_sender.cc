#include "chief/ps_command_sender.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/channel_arguments.h"

namespace lagrange {

struct PsCommandSender::Call {
  uint64_t command_id = 0;
  // For messages.
  std::string ps;
  PsCommand command;
  PsCommandResult result;
  grpc::ClientContext context;
  std::shared_ptr<PsControlService::Stub> stub;
};

PsCommandSender::~PsCommandSender() {
  std::vector<std::shared_ptr<Call>> open;
  {
    absl::MutexLock lock(&mutex_);
    open.assign(calls_.begin(), calls_.end());
  }
  // Not under the lock: a cancellation may hand its call back at once.
  for (const auto& call : open) call->context.TryCancel();
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &PsCommandSender::IsIdle));
}

void PsCommandSender::Send(const OutgoingPsCommand& command) {
  const auto call = std::make_shared<Call>();
  call->command_id = command.command_id;
  call->ps = absl::StrCat("ps ", command.ps_index, " at ", command.address);
  call->command = command.command;
  call->context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(command.deadline));
  {
    absl::MutexLock lock(&mutex_);
    call->stub = StubOf(command.ps_index, command.address);
    calls_.insert(call);
  }
  call->stub->async()->Execute(&call->context, &call->command, &call->result, [this, call](const grpc::Status& status) {
    OnDone(call, absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message()));
  });
}

std::shared_ptr<PsControlService::Stub> PsCommandSender::StubOf(int32_t ps_index, const std::string& address) {
  Peer& peer = peers_[ps_index];
  if (peer.stub == nullptr || peer.address != address) {
    peer.address = address;
    peer.stub = PsControlService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), ClientChannelArguments()));
  }
  return peer.stub;
}

void PsCommandSender::OnDone(const std::shared_ptr<Call>& call, const absl::Status& status) {
  if (status.ok()) {
    on_result_(call->command_id, std::move(call->result));
  } else {
    on_result_(call->command_id, absl::Status(status.code(), absl::StrCat(call->ps, ": ", status.message())));
  }
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

}  // namespace lagrange

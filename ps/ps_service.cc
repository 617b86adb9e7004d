#include "ps/ps_service.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"
#include "ps/checkpoint_files.h"

namespace lagrange {
namespace {

// The ps of the map that has this incarnation.
absl::StatusOr<int32_t> PsIndexOf(const ShardMap& map, uint64_t incarnation) {
  for (const PsAddress& ps : map.ps()) {
    if (ps.incarnation() == incarnation) return ps.ps_index();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("install_shards: map version ", map.version(), " has no ps of incarnation ", incarnation));
}

// Deterministic within a process, which is all that comparing repeats needs.
std::string WrittenFor(const PsCommand& command) {
  return absl::StrCat(command.generation(), " ", command.write_checkpoint().SerializeAsString());
}

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes are the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

PsService::PsService(Engine* engine, Callbacks callbacks) : engine_(engine), callbacks_(std::move(callbacks)) {}

void PsService::AdmitCommands() {
  absl::MutexLock lock(&mutex_);
  admitted_ = true;
}

void PsService::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
}

grpc::Status PsService::Execute(grpc::ServerContext* context, const PsCommand* command, PsCommandResult* result) {
  absl::StatusOr<PsCommandResult> done = Handle(*command);
  if (!done.ok()) return ToGrpc(done.status());
  *result = *std::move(done);
  return grpc::Status::OK;
}

absl::StatusOr<PsCommandResult> PsService::Handle(const PsCommand& command) {
  RETURN_IF_ERROR(AwaitIdentity());
  if (command.has_write_checkpoint()) return WriteCheckpointFile(command);
  if (command.has_install_shards() && command.install_shards().has_restore()) return InstallFromCheckpoint(command);
  absl::StatusOr<PsCommandResult> result = Forward(command);
  if (result.ok() && command.has_shut_down()) callbacks_.shut_down(command.shut_down().reason());
  return result;
}

absl::Status PsService::AwaitIdentity() {
  absl::MutexLock lock(&mutex_);
  const auto decided = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return admitted_ || stopped_; };
  mutex_.AwaitWithTimeout(absl::Condition(&decided), kIdentityTimeout);
  if (stopped_) return absl::UnavailableError("this ps is stopping");
  if (!admitted_) return absl::UnavailableError("this ps has not been registered yet");
  return absl::OkStatus();
}

absl::StatusOr<PsCommandResult> PsService::Forward(const PsCommand& command) {
  PsEffects effects;
  absl::StatusOr<PsCommandResult> result = engine_->Execute(command, &effects);
  callbacks_.deliver(std::move(effects));
  return result;
}

absl::StatusOr<PsCommandResult> PsService::WriteCheckpointFile(const PsCommand& command) {
  absl::MutexLock lock(&disk_mutex_);
  // Checked under the lock: a new generation may have begun while another file was being written.
  ASSIGN_OR_RETURN(PsCommandResult result, Forward(command));
  const WriteCheckpoint& write = command.write_checkpoint();
  if (std::string purpose = WrittenFor(command); purpose != written_for_) {
    ASSIGN_OR_RETURN(const std::vector<ShardSnapshot> fork, engine_->GetFork(write.cut()));
    RETURN_IF_ERROR(MakeDirectories(write.directory()));
    ASSIGN_OR_RETURN(
        written_, WriteShardsFile(write.directory(),
                                  {write.file_stem(), write.cut(), command.generation(), command.incarnation()}, fork));
    written_slot_names_ = fork.empty() ? std::vector<std::string>() : fork[0].slot_names;
    written_for_ = std::move(purpose);
  }
  *result.add_files() = written_;
  result.mutable_slot_names()->Assign(written_slot_names_.begin(), written_slot_names_.end());
  return result;
}

absl::StatusOr<PsCommandResult> PsService::InstallFromCheckpoint(const PsCommand& command) {
  absl::MutexLock lock(&disk_mutex_);
  const InstallShards& install = command.install_shards();
  std::string purpose = absl::StrCat(command.generation(), " ", install.map().version());
  // The engine has them: it answers a repeat, or refuses it, without looking at any.
  if (purpose == installed_for_) return engine_->Restore(command, {});
  ASSIGN_OR_RETURN(const int32_t ps_index, PsIndexOf(install.map(), command.incarnation()));
  ASSIGN_OR_RETURN(const std::vector<WantedShard> wanted, ShardsOfPs(install.map(), ps_index));
  ASSIGN_OR_RETURN(std::vector<ShardSnapshot> shards, ReadShards(install.restore(), wanted));
  ASSIGN_OR_RETURN(PsCommandResult result, engine_->Restore(command, std::move(shards)));
  installed_for_ = std::move(purpose);
  return result;
}

}  // namespace lagrange

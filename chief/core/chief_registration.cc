// Who may take part: the checks of a registration, in the order in which they are told.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "chief/core/chief_machine.h"
#include "common/partition.h"
#include "common/status.h"
#include "common/version.h"

namespace lagrange {
namespace {

constexpr int kMaxVariables = 1 << 16;
// Names of hosts are at most 253 bytes; with port, brackets and process number there is room.
constexpr size_t kMaxAddressBytes = 512;

void SetDuration(absl::Duration duration, google::protobuf::Duration* proto) {
  const int64_t seconds = absl::ToInt64Seconds(duration);
  proto->set_seconds(seconds);
  proto->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration - absl::Seconds(seconds))));
}

std::string NameOfCaller(const RegisterRequest& request) {
  const std::string role = request.role() == PS ? "ps" : "worker";
  const std::string index = request.has_task_index() ? absl::StrCat(" ", request.task_index()) : "";
  return absl::StrCat(role, index, request.host().empty() ? "" : absl::StrCat(" (", request.host(), ")"));
}

std::string ShapeText(const VariableSpec& variable) {
  std::string text;
  for (const int64_t dimension : variable.shape()) absl::StrAppend(&text, text.empty() ? "" : ", ", dimension);
  return absl::StrCat(variable.name(), " [", text, "]");
}

absl::Status CheckVariables(const RegisterRequest& request, int64_t shard_bytes) {
  if (request.variables_size() > kMaxVariables) {
    return absl::InvalidArgumentError(absl::StrCat("the model has ", request.variables_size(), " variables, at most ",
                                                   kMaxVariables, " are allowed"));
  }
  double shards = request.variables_size();
  for (const VariableSpec& variable : request.variables()) {
    ASSIGN_OR_RETURN(const int64_t elements, ElementCount(variable));
    shards += 4.0 * static_cast<double>(elements) / static_cast<double>(shard_bytes);
  }
  if (shards > kMaxShardCount) {
    return absl::InvalidArgumentError(absl::StrCat("the model makes about ", static_cast<int64_t>(shards),
                                                   " shards of cluster.shard_bytes = ", shard_bytes, ", at most ",
                                                   kMaxShardCount, " are allowed"));
  }
  const std::vector<VariableSpec> variables(request.variables().begin(), request.variables().end());
  return CutIntoShards(variables, shard_bytes).status();
}

}  // namespace

RegisterResponse ChiefMachine::Register(const RegisterRequest& request, absl::Time now, ChiefEffects* effects) {
  const Turn turn{now, effects};
  RegisterResponse response;
  HandleRegister(request, turn, &response);
  Advance(turn);
  response.set_term(Counter("term"));
  response.set_generation(Counter("generation"));
  response.set_chief_build_version(kBuildVersion);
  response.set_chief_protocol_version(kProtocolVersion);
  SetDuration(options_.heartbeat_interval, response.mutable_heartbeat_interval());
  response.set_checkpoint_directory(options_.checkpoint_directory);
  response.set_directory_token_file(options_.directory_token_file);
  // With the lease's size resolved once the data is known, so that all cut the same batches.
  if (response.outcome() == RegisterResponse::REGISTERED || response.outcome() == RegisterResponse::JOB) {
    *response.mutable_job() = job_;
  }
  return response;
}

void ChiefMachine::HandleRegister(const RegisterRequest& request, Turn turn, RegisterResponse* response) {
  const auto refuse = [response](const absl::Status& status) {
    response->set_outcome(RegisterResponse::REFUSED_REGISTRATION);
    response->set_message(std::string(status.message()));
  };
  if (const absl::Status status = CheckCaller(request); !status.ok()) return refuse(status);
  if (ended_) {
    if (!end_status_.ok()) return refuse(Annotate(end_status_, "the job has failed"));
    response->set_outcome(RegisterResponse::JOB_IS_COMPLETE);
    return;
  }
  const Member* known = membership_.OfProcess(request.role(), request.process_id());
  // A ps keeps its shards under its incarnation for as long as it lives, so it can't give it up. A worker that has
  // asked for work knows its incarnation: whoever registers then has dropped it, even if it doesn't say which.
  bool gives_up = false;
  if (known != nullptr && request.role() == WORKER) {
    const auto work = work_.find(known->record.incarnation);
    gives_up = request.previous_incarnation() == known->record.incarnation ||
               (request.previous_incarnation() == 0 && work != work_.end() && work->second.sequence > 0);
  }
  if (known != nullptr && !gives_up) {
    membership_.Heard(known->record.incarnation, turn.now);
    return Accept(*known, response);
  }
  if (AskForProof(request, response)) return;
  if (request.role() == PS && request.directory_token() != options_.directory_token) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        NameOfCaller(request), ": its checkpoint directory is not the chief's ", options_.checkpoint_directory, ": ",
        options_.directory_token_file, " holds something else there")));
  }
  if (request.role() == WORKER) {
    const absl::Status status = model_.has_value() ? CheckModel(request) : AdoptModel(request, turn);
    if (!status.ok()) return refuse(status);
  }
  RegisterRequest seated = request;
  if (gives_up) {
    if (!seated.has_task_index()) seated.set_task_index(known->record.task_index);
    Remove(known->record.incarnation, MemberState::kEvicted, "registers anew", turn);
  }
  GiveSeat(seated, turn, response);
}

absl::Status ChiefMachine::CheckCaller(const RegisterRequest& request) const {
  if (request.role() != PS && request.role() != WORKER) {
    return absl::InvalidArgumentError(absl::StrCat("role: expected PS or WORKER, got ", request.role()));
  }
  const std::string caller = NameOfCaller(request);
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(caller, " of build ", request.build_version(), " speaks protocol ", request.protocol_version(),
                     ", this chief of build ", kBuildVersion, " speaks protocol ", kProtocolVersion));
  }
  if (request.process_id() == 0) return absl::InvalidArgumentError(absl::StrCat(caller, ": process_id must not be 0"));
  if (request.address().size() > kMaxAddressBytes || request.host().size() > kMaxAddressBytes) {
    return absl::InvalidArgumentError(absl::StrCat("address or host of ", request.address().size(), " and ",
                                                   request.host().size(), " bytes: expected at most ",
                                                   kMaxAddressBytes));
  }
  if (request.role() == PS && request.address().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(caller, ": a ps must say its address"));
  }
  const ClusterSpec& cluster = job_.cluster();
  if (request.has_expected_ps_count() && request.expected_ps_count() != cluster.ps_count()) {
    return absl::FailedPreconditionError(
        absl::StrCat(caller, " expects ", request.expected_ps_count(), " ps, the job declares ", cluster.ps_count()));
  }
  if (request.has_expected_worker_count() && request.expected_worker_count() != cluster.worker_count()) {
    return absl::FailedPreconditionError(absl::StrCat(caller, " expects ", request.expected_worker_count(),
                                                      " workers, the job declares ", cluster.worker_count()));
  }
  const int32_t count = request.role() == PS ? cluster.ps_count() : cluster.worker_count();
  if (request.has_task_index() && (request.task_index() < 0 || request.task_index() >= count)) {
    return absl::FailedPreconditionError(absl::StrCat(caller, ": task_index ", request.task_index(),
                                                      ", the job declares ", count, ": 0 to ", count - 1));
  }
  return absl::OkStatus();
}

bool ChiefMachine::AskForProof(const RegisterRequest& request, RegisterResponse* response) const {
  const bool complete = request.role() == PS ? !request.directory_token().empty() : request.has_model();
  if (!complete) response->set_outcome(RegisterResponse::JOB);
  return !complete;
}

absl::Status ChiefMachine::CheckModel(const RegisterRequest& request) const {
  const std::string caller = NameOfCaller(request);
  const auto differs = [&caller](absl::string_view what, const auto& theirs, const auto& ours) {
    return absl::FailedPreconditionError(
        absl::StrCat(caller, " has ", what, " ", theirs, ", the first worker had ", ours));
  };
  if (request.train_records() != model_->train_records) {
    return differs("train_records", request.train_records(), model_->train_records);
  }
  if (request.test_records() != model_->test_records) {
    return differs("test_records", request.test_records(), model_->test_records);
  }
  if (request.variables_size() != model_->variables.size()) {
    return differs("a count of variables of", request.variables_size(), model_->variables.size());
  }
  for (int i = 0; i < request.variables_size(); ++i) {
    const VariableSpec& theirs = request.variables(i);
    const VariableSpec& ours = model_->variables[i];
    if (ShapeText(theirs) != ShapeText(ours)) return differs("variable", ShapeText(theirs), ShapeText(ours));
    if (theirs.initializer().SerializeAsString() != ours.initializer().SerializeAsString()) {
      return differs(absl::StrCat("for ", ours.name(), " the initializer"), theirs.initializer().ShortDebugString(),
                     ours.initializer().ShortDebugString());
    }
  }
  return absl::OkStatus();
}

absl::Status ChiefMachine::AdoptModel(const RegisterRequest& request, Turn turn) {
  const std::string caller = NameOfCaller(request);
  RETURN_IF_ERROR(Annotate(CheckVariables(request, job_.cluster().shard_bytes()), caller));
  if (request.train_records() < 1 || request.test_records() < 0) {
    return absl::InvalidArgumentError(absl::StrCat(caller,
                                                   ": expected at least 1 train record and 0 test records, got ",
                                                   request.train_records(), " and ", request.test_records()));
  }
  ModelRecord model;
  model.variables.assign(request.variables().begin(), request.variables().end());
  model.train_records = request.train_records();
  model.test_records = request.test_records();
  RETURN_IF_ERROR(Annotate(UseModel(model), caller));
  if (options_.restore.has_value()) {
    const absl::Status status = CheckRestoredModel(*options_.restore, model.variables, ledger_->cutter());
    if (!status.ok()) {
      // No other worker of this job could fit.
      Fail(absl::InvalidArgumentError(status.message()), turn);
      return status;
    }
  }
  turn.effects->records.push_back(model);
  SetCounter("examples_per_lease", ledger_->cutter().examples_per_lease(), turn);
  return absl::OkStatus();
}

void ChiefMachine::GiveSeat(const RegisterRequest& request, Turn turn, RegisterResponse* response) {
  const Membership::Seat seat = membership_.FindSeat(request, turn.now);
  if (seat.kind == Membership::Seat::kRefused) {
    response->set_outcome(RegisterResponse::REFUSED_REGISTRATION);
    response->set_message(seat.message);
    return;
  }
  if (seat.kind == Membership::Seat::kAskAgain) {
    response->set_outcome(RegisterResponse::JOB);
    response->set_message(absl::StrCat(seat.message, "; it may be dead: ask again"));
    return;
  }
  if (request.role() == PS && phase_ != Phase::kWaiting) {
    const absl::Status lost = absl::UnavailableError(
        absl::StrCat("ps ", seat.task_index, " was replaced by ", NameOfCaller(request), ", which has no parameters"));
    Fail(lost, turn);
    response->set_outcome(RegisterResponse::REFUSED_REGISTRATION);
    response->set_message(std::string(lost.message()));
    return;
  }
  if (seat.kind == Membership::Seat::kTakeOver) {
    Remove(seat.holder, MemberState::kEvicted, absl::StrCat("replaced by ", NameOfCaller(request)), turn);
  }
  const uint64_t incarnation = Counter("incarnation") + 1;
  SetCounter("incarnation", incarnation, turn);
  const Member& member = membership_.Admit(request, seat.task_index, incarnation, turn.now);
  turn.effects->records.push_back(member.record);
  Progress(absl::StrCat(Describe(member.record), " registered"), turn);
  Accept(member, response);
}

void ChiefMachine::Accept(const Member& member, RegisterResponse* response) const {
  response->set_outcome(RegisterResponse::REGISTERED);
  response->set_incarnation(member.record.incarnation);
  response->set_task_index(member.record.task_index);
}

}  // namespace lagrange

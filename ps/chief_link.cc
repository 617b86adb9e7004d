#include "ps/chief_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"
#include "proto/channel_arguments.h"

namespace lagrange {
namespace {

// Answers JOB that one registration may get: one, and one more each time the chief is started again meanwhile.
constexpr int kMaxRegistrationRounds = 10;
// Longer than any chief's token.
constexpr int64_t kMaxTokenBytes = 4096;
// A goodbye isn't worth waiting for.
constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);
// Bounds of the interval that a chief can ask for.
constexpr absl::Duration kMinHeartbeatInterval = absl::Milliseconds(10);
constexpr absl::Duration kMaxHeartbeatInterval = absl::Seconds(60);

// Whether the same call may succeed later. The others mean that no chief of ours answers there.
bool IsPassing(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kOutOfRange:
      return false;
    default:
      return true;
  }
}

// gRPC's message names every address tried and its own layers; people need to know which of a few things it was.
std::string CauseOf(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::StrContains(message, "DNS resolution failed") || absl::StrContains(message, "name not resolved")) {
    return "name not resolved";
  }
  if (absl::StrContains(message, "Connection refused")) return "connection refused";
  if (absl::IsDeadlineExceeded(status)) return "no answer";
  return message;
}

absl::Duration HeartbeatInterval(const RegisterResponse& registration) {
  const auto& interval = registration.heartbeat_interval();
  return std::clamp(absl::Seconds(interval.seconds()) + absl::Nanoseconds(interval.nanos()), kMinHeartbeatInterval,
                    kMaxHeartbeatInterval);
}

// The token of the chief's directory, once a file has been written and removed there.
absl::StatusOr<std::string> ProveDirectory(const RegisterResponse& job, uint64_t process_id) {
  const std::string& directory = job.checkpoint_directory();
  ASSIGN_OR_RETURN(std::string token, ReadFile(JoinPath(directory, job.directory_token_file()), kMaxTokenBytes));
  const std::string probe = JoinPath(directory, absl::StrCat("ps-", process_id, ".probe"));
  RETURN_IF_ERROR(WriteFileAtomically(probe, token));
  RETURN_IF_ERROR(RemoveFile(probe));
  return token;
}

}  // namespace

ChiefLink::ChiefLink(ChiefLinkOptions options, const Clock* clock, Say say)
    : options_(std::move(options)), clock_(clock), say_(std::move(say)) {}

std::variant<RegisterResponse, ProcessEnd> ChiefLink::Register(RegisterRequest request, const AddressSource& address) {
  const absl::Time since = clock_->Now();
  for (int round = 0; round < kMaxRegistrationRounds;) {
    RegisterResponse response;
    const absl::Status status = TryToRegister(address, &request, &response);
    if (std::optional<ProcessEnd> ended = end()) return *ended;
    if (!status.ok()) {
      if (std::optional<ProcessEnd> end = GiveUp(since, status)) return *end;
      Notice(absl::StrCat("waiting for the chief at ", options_.chief, ": ", CauseOf(status)));
      if (!Pause(options_.retry_interval)) return *end();
      continue;
    }
    if (response.outcome() == RegisterResponse::REGISTERED) {
      term_ = std::max(term_, response.term());
      return response;
    }
    if (response.outcome() == RegisterResponse::JOB_IS_COMPLETE) return ProcessEnd{0, response.message()};
    if (response.outcome() != RegisterResponse::JOB) {
      return ProcessEnd{2, absl::StrCat("the chief at ", options_.chief, " refused this ps: ", response.message())};
    }
    if (!response.message().empty() && !request.directory_token().empty()) {
      // Our index may still be held by a process that died: the chief knows within three heartbeats.
      Notice(response.message());
      const absl::Duration pause = absl::Seconds(response.heartbeat_interval().seconds()) +
                                   absl::Nanoseconds(response.heartbeat_interval().nanos());
      if (!Pause(std::clamp(pause, options_.retry_interval, absl::Seconds(10)))) return *end();
      ++round;
      continue;
    }
    absl::StatusOr<std::string> token = ProveDirectory(response, request.process_id());
    if (!token.ok()) {
      return ProcessEnd{2, absl::StrCat("every ps must be able to read and write the chief's checkpoint directory: ",
                                        token.status().message())};
    }
    request.set_directory_token(*std::move(token));
    ++round;
  }
  return ProcessEnd{1, absl::StrCat("the chief at ", options_.chief, " still asks for the directory's token after ",
                                    kMaxRegistrationRounds, " answers")};
}

absl::Status ChiefLink::TryToRegister(const AddressSource& address, RegisterRequest* request,
                                      RegisterResponse* response) {
  ASSIGN_OR_RETURN(*request->mutable_address(), address());
  return Call(&ChiefService::Stub::Register, *request, options_.call_timeout, response);
}

ProcessEnd ChiefLink::BeatUntilEnd(const RegisterResponse& registration,
                                   const std::function<HeartbeatRequest()>& beat) {
  absl::Time last_heard = clock_->Now();
  while (Pause(HeartbeatInterval(registration))) {
    HeartbeatRequest request = beat();
    request.set_incarnation(registration.incarnation());
    request.set_term(term_);
    HeartbeatResponse response;
    const absl::Status status = Call(&ChiefService::Stub::Heartbeat, request, options_.call_timeout, &response);
    if (end().has_value()) break;
    if (status.ok()) {
      last_heard = clock_->Now();
      if (std::optional<ProcessEnd> end = OnHeartbeat(response)) return *end;
      continue;
    }
    if (std::optional<ProcessEnd> end = GiveUp(last_heard, status)) return *end;
    Notice(absl::StrCat("waiting for the chief at ", options_.chief, " to come back: ", CauseOf(status)));
  }
  return *end();
}

std::optional<ProcessEnd> ChiefLink::OnHeartbeat(const HeartbeatResponse& response) {
  // An older chief that is still about has no say any more.
  if (response.term() < term_) return std::nullopt;
  term_ = response.term();
  switch (response.directive()) {
    case FINISH:
      return ProcessEnd{0, response.message()};
    case ABORT:
      return ProcessEnd{1, absl::StrCat("the job failed: ", response.message())};
    case REGISTER_AGAIN:
      // What it holds is older than what the others go on with, so it can't come back as what it was.
      return ProcessEnd{1,
                        absl::StrCat("the chief at ", options_.chief, " counts this ps as lost: ", response.message())};
    default:
      break;
  }
  if (!response.waiting_for().empty()) Notice(response.waiting_for());
  return std::nullopt;
}

void ChiefLink::Leave(const RegisterResponse& registration, const ProcessEnd& end) {
  LeaveRequest request;
  request.set_incarnation(registration.incarnation());
  request.set_term(term_);
  request.set_failed(end.exit_status != 0);
  request.set_reason(end.reason);
  LeaveResponse response;
  // Whether it arrives makes no difference to a process that ends.
  Call(&ChiefService::Stub::Leave, request, kLeaveTimeout, &response).IgnoreError();
}

void ChiefLink::End(ProcessEnd end) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = std::move(end);
  if (open_call_ != nullptr) open_call_->TryCancel();
}

template <typename Request, typename Response>
absl::Status ChiefLink::Call(Method<Request, Response> method, const Request& request, absl::Duration timeout,
                             Response* response) {
  if (stub_ == nullptr) {
    stub_ = ChiefService::NewStub(
        grpc::CreateCustomChannel(options_.chief, grpc::InsecureChannelCredentials(), ClientChannelArguments()));
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  {
    absl::MutexLock lock(&mutex_);
    // A goodbye is said after the end, and not cancelled by it.
    if (!end_.has_value()) open_call_ = &context;
  }
  const grpc::Status status = (stub_.get()->*method)(&context, request, response);
  {
    absl::MutexLock lock(&mutex_);
    open_call_ = nullptr;
  }
  if (status.ok()) return absl::OkStatus();
  stub_ = nullptr;
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

std::optional<ProcessEnd> ChiefLink::GiveUp(absl::Time since, const absl::Status& cause) const {
  if (!IsPassing(cause)) {
    return ProcessEnd{1, absl::StrCat("what answers at ", options_.chief, " is no chief: ", cause.message())};
  }
  if (clock_->Now() - since < options_.startup_timeout) return std::nullopt;
  return ProcessEnd{
      1, absl::StrCat("no chief at ", options_.chief, " for ", absl::FormatDuration(options_.startup_timeout),
                      " (startup_timeout): ", CauseOf(cause))};
}

void ChiefLink::Notice(const std::string& line) {
  const absl::Time now = clock_->Now();
  if (line == last_notice_ && now < next_notice_) return;
  last_notice_ = line;
  next_notice_ = now + options_.notice_interval;
  say_(line);
}

bool ChiefLink::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
  return !mutex_.AwaitWithTimeout(absl::Condition(&ended), duration);
}

std::optional<ProcessEnd> ChiefLink::end() const {
  absl::MutexLock lock(&mutex_);
  return end_;
}

}  // namespace lagrange

// The worker's calls to the chief, and the handshake of its registration.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/version.h"
#include "worker/worker.h"
#include "worker/worker_events.h"

namespace lagrange {
namespace {

// Between lines that say what is waited for.
constexpr absl::Duration kMessageInterval = absl::Seconds(5);

}  // namespace

template <typename Response>
ChiefClient::Callback<Response> Worker::Answer(uint64_t call_id,
                                               void (StepLoop::*deliver)(uint64_t, const Response&, absl::Time,
                                                                         WorkerEffects*)) {
  return [this, call_id, deliver](const absl::StatusOr<Response>& response) {
    events_.Post([this, call_id, deliver, response] {
      if (!response.ok()) return OnChiefCallFailed(call_id, response.status());
      Deliver(
          [&](absl::Time now, WorkerEffects* effects) { (loop_.get()->*deliver)(call_id, *response, now, effects); });
    });
  };
}

void Worker::Do(const CallHeartbeat& effect) {
  HeartbeatRequest request = effect.request;
  request.set_examples_per_second(examples_.PerSecond(clock_->Now()));
  request.set_examples_total(examples_.total());
  chief_->Heartbeat(request, [this, call_id = effect.call_id](const absl::StatusOr<HeartbeatResponse>& response) {
    events_.Post([this, call_id, response] {
      if (!response.ok()) return OnChiefCallFailed(call_id, response.status());
      OnHeartbeatAnswer(*response);
      Deliver([&](absl::Time now, WorkerEffects* effects) {
        loop_->OnHeartbeatResponse(call_id, *response, now, effects);
      });
    });
  });
}

void Worker::OnHeartbeatAnswer(const HeartbeatResponse& response) {
  const absl::Time now = clock_->Now();
  if (response.waiting_for().empty() || now < next_waiting_message_) return;
  next_waiting_message_ = now + kMessageInterval;
  LogInfo(response.waiting_for());
}

void Worker::Do(const CallAcquireWork& effect) {
  chief_->AcquireWork(effect.request, Answer(effect.call_id, &StepLoop::OnAcquireWorkResponse));
}

void Worker::Do(const CallReportBatches& effect) {
  chief_->ReportBatches(effect.request, Answer(effect.call_id, &StepLoop::OnReportBatchesResponse));
}

void Worker::Do(const CallReportEvaluation& effect) {
  chief_->ReportEvaluation(effect.request, Answer(effect.call_id, &StepLoop::OnReportEvaluationResponse));
}

void Worker::Do(const CallLeave& effect) {
  chief_->Leave(effect.request, [this, call_id = effect.call_id](const absl::StatusOr<LeaveResponse>& response) {
    events_.Post([this, call_id, status = response.status()] {
      // Without a word to people: at a job's end the chief may well be gone.
      Deliver([&](absl::Time now, WorkerEffects* effects) {
        if (status.ok()) {
          loop_->OnLeaveResponse(call_id, now, effects);
        } else {
          loop_->OnChiefCallFailed(call_id, status, now, effects);
        }
      });
    });
  });
}

void Worker::OnChiefCallFailed(uint64_t call_id, const absl::Status& status) {
  const absl::Time now = clock_->Now();
  if (now >= next_chief_message_) {
    next_chief_message_ = now + kMessageInterval;
    LogInfo("waiting for the chief at ", status.message());
  }
  Deliver([&](absl::Time at, WorkerEffects* effects) { loop_->OnChiefCallFailed(call_id, status, at, effects); });
}

void Worker::Do(const CallRegister& effect) {
  // A repeat while the handshake goes on (the data may take their time) changes nothing.
  if (registration_) return;
  registration_ = effect.call_id;
  Register();
}

void Worker::Register() {
  RegisterRequest request = options_.identity;
  request.set_role(WORKER);
  request.set_protocol_version(kProtocolVersion);
  request.set_build_version(kBuildVersion);
  if (computer_ != nullptr) {
    request.set_has_model(true);
    for (const VariableSpec& variable : computer_->variables()) *request.add_variables() = variable;
    request.set_train_records(computer_->train_records());
    request.set_test_records(computer_->test_records());
  }
  chief_->Register(request, [this](const absl::StatusOr<RegisterResponse>& response) {
    events_.PostAlways([this, response] { OnRegistered(response); });
  });
}

void Worker::OnRegistered(const absl::StatusOr<RegisterResponse>& response) {
  if (failing_ || !registration_) return;
  if (response.ok() && response->outcome() == RegisterResponse::JOB && computer_ == nullptr) {
    return OpenJob(response->job());
  }
  const uint64_t call_id = *registration_;
  registration_.reset();
  if (!response.ok()) return OnChiefCallFailed(call_id, response.status());
  const RegisterResponse::Outcome outcome = response->outcome();
  // Our index may still be held by a process that died: the chief knows in a few heartbeats.
  if (outcome == RegisterResponse::JOB && !response->message().empty()) {
    return OnChiefCallFailed(call_id, absl::UnavailableError(response->message()));
  }
  if (outcome == RegisterResponse::JOB || (outcome == RegisterResponse::REGISTERED && computer_ == nullptr)) {
    return OnChiefCallFailed(
        call_id, absl::InternalError(absl::StrCat("the chief answered a registration with ",
                                                  RegisterResponse::Outcome_Name(outcome), " out of turn")));
  }
  if (outcome == RegisterResponse::REGISTERED) {
    task_index_ = response->task_index();
    SetLogIdentity("worker", task_index_);
    LogInfo("registered with incarnation ", response->incarnation());
  }
  Deliver([&](absl::Time now, WorkerEffects* effects) { loop_->OnRegisterResponse(call_id, *response, now, effects); });
}

void Worker::OpenJob(const JobSpec& job) {
  LogInfo("job ", job.name(), ": opening its data");
  compute_->Do([this, job] {
    auto computer =
        std::make_shared<absl::StatusOr<std::unique_ptr<BatchComputer>>>(BatchComputer::Create(job, options_.parts));
    events_.PostAlways([this, computer] { OnJobOpened(std::move(*computer)); });
  });
}

void Worker::OnJobOpened(absl::StatusOr<std::unique_ptr<BatchComputer>> computer) {
  if (exit_status_) return;
  if (!computer.ok()) return FailNow(computer.status(), true);
  computer_ = *std::move(computer);
  loop_->UseCutter(computer_->cutter());
  loop_->UseLookahead(LookaheadFor(computer_->job()));
  Register();
}

}  // namespace lagrange

#include "worker/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/partition.h"
#include "common/status.h"
#include "kernels/matmul.h"
#include "worker/worker_events.h"

namespace lagrange {
namespace {

// The loop wakes by its own deadlines; this only bounds a wait without any.
constexpr absl::Duration kMaxWait = absl::Minutes(1);

std::string DescribeVariable(const VariableSpec& variable) {
  std::string text = absl::StrCat(variable.name(), " [");
  for (int i = 0; i < variable.shape_size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", variable.shape(i));
  return absl::StrCat(text, "]");
}

// A repeat is rare (the request timeout is long) and costs a step dearly, so people should see it.
void WarnOfRepeat(absl::string_view what, int32_t ps_index, uint64_t request_id, int64_t step_clock) {
  LogWarning("ps ", ps_index, " has not answered ", what, " ", request_id, " of step ", step_clock, ": sent again");
}

// Names and shapes; who declared which initializer is the chief's to check.
absl::Status CheckVariables(const ShardMap& map, const std::vector<VariableSpec>& expected) {
  if (map.variables_size() != static_cast<int>(expected.size())) {
    return absl::FailedPreconditionError(absl::StrCat("shard map ", map.version(), ": expected ", expected.size(),
                                                      " variables, got ", map.variables_size()));
  }
  for (int i = 0; i < map.variables_size(); ++i) {
    const std::string want = DescribeVariable(expected[i]);
    const std::string got = DescribeVariable(map.variables(i));
    if (want == got) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("shard map ", map.version(), ": variable ", i, ": expected ", want, ", got ", got));
  }
  return absl::OkStatus();
}

}  // namespace

int ExitStatusFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnimplemented:
      return 2;
    default:
      return 1;
  }
}

Worker::Worker(const WorkerOptions& options, const Clock* clock, std::unique_ptr<ChiefClient> chief,
               const PsClientFactory& make_ps_client)
    : options_(options),
      clock_(clock),
      loop_(NewStepLoop(options.loop)),
      compute_(std::make_unique<SerialThread>(SerialThread::AtEnd::kDrop)),
      chief_(std::move(chief)) {
  ps_client_ = make_ps_client(
      [this](int32_t ps_index, uint64_t request_id, FrameKind kind, const ReplyHeader& reply) {
        events_.Post([=] { OnPsReply(ps_index, request_id, kind, reply); });
      },
      [this](int32_t ps_index) {
        events_.Post([=] {
          Deliver([&](absl::Time now, WorkerEffects* effects) { loop_->OnPsReconnected(ps_index, now, effects); });
        });
      });
}

Worker::~Worker() {
  ps_client_.reset();
  chief_.reset();
  compute_.reset();
}

absl::Status Worker::Run() {
  compute_->Do([threads = options_.compute_threads] { kernels::SetComputeThreads(threads); });
  Deliver([this](absl::Time now, WorkerEffects* effects) { loop_->Start(now, effects); });
  while (!exit_status_) {
    const absl::Duration wait = loop_->next_tick() - clock_->Now();
    const EventQueue::Event event = events_.Take(std::clamp(wait, absl::ZeroDuration(), kMaxWait));
    if (event) event();
    if (exit_status_ || failing_ || loop_->next_tick() > clock_->Now()) continue;
    Deliver([this](absl::Time now, WorkerEffects* effects) { loop_->Tick(now, effects); });
  }
  return *exit_status_;
}

void Worker::RequestStop() {
  events_.PostAlways(
      [this] { Deliver([this](absl::Time now, WorkerEffects* effects) { loop_->OnStopRequested(now, effects); }); });
}

void Worker::OnPsReply(int32_t ps_index, uint64_t request_id, FrameKind kind, const ReplyHeader& reply) {
  if (kind == PULL_REPLY) {
    for (auto& open : open_pulls_) {
      const auto found = open.find(ps_index);
      if (found != open.end() && found->second == request_id) open.erase(found);
    }
    Deliver(
        [&](absl::Time now, WorkerEffects* effects) { loop_->OnPullReply(ps_index, request_id, reply, now, effects); });
    return;
  }
  open_pushes_.erase(std::remove_if(open_pushes_.begin(), open_pushes_.end(),
                                    [=](const PushedRequest& push) {
                                      return push.ps_index == ps_index && push.request_id == request_id;
                                    }),
                     open_pushes_.end());
  Deliver(
      [&](absl::Time now, WorkerEffects* effects) { loop_->OnPushReply(ps_index, request_id, reply, now, effects); });
}

void Worker::Do(const SendPull& effect) {
  // A pull that the loop has given up must not write into the memory of this one.
  const auto [open, is_new] = open_pulls_[effect.buffer].try_emplace(effect.ps_index, effect.request_id);
  if (!is_new && open->second == effect.request_id) {
    WarnOfRepeat("pull", effect.ps_index, effect.request_id, effect.header.step_clock());
  } else if (!is_new) {
    ps_client_->Forget(effect.ps_index, open->second);
    open->second = effect.request_id;
  }
  const ParameterLayout layout{parameters_[effect.buffer].variables(), &versions_[effect.buffer]};
  ps_client_->Pull(effect.ps_index, effect.request_id, effect.header, layout);
}

void Worker::Do(const SendPush& effect) {
  const auto same = [&](const PushedRequest& push) {
    return push.ps_index == effect.ps_index && push.request_id == effect.request_id;
  };
  if (std::none_of(open_pushes_.begin(), open_pushes_.end(), same)) {
    open_pushes_.push_back({effect.ps_index, effect.request_id});
  } else {
    WarnOfRepeat("push", effect.ps_index, effect.request_id, effect.header.step_clock());
  }
  const ParameterLayout layout{gradients_->variables(), &versions_[effect.buffer]};
  ps_client_->Push(effect.ps_index, effect.request_id, effect.header, layout, effect.shards);
}

void Worker::ForgetPulls(int buffer) {
  for (const auto& [ps_index, request_id] : open_pulls_[buffer]) ps_client_->Forget(ps_index, request_id);
  open_pulls_[buffer].clear();
}

void Worker::ForgetPushes() {
  for (const PushedRequest& push : open_pushes_) ps_client_->Forget(push.ps_index, push.request_id);
  open_pushes_.clear();
}

void Worker::Do(const StartCompute& effect) {
  ForgetPulls(effect.buffer);
  ForgetPushes();
  const StepName step{task_index_, loop_->clock()};
  compute_->Do([this, effect, step] {
    const ComputeResult result = computer_->Compute(effect.key, step, parameters_[effect.buffer], *gradients_);
    if (options_.step_delay > absl::ZeroDuration()) compute_->Pause(options_.step_delay);
    events_.PostAlways([this, result] {
      if (result.status.ok()) examples_.Add(result.example_count, clock_->Now());
      Deliver([&](absl::Time now, WorkerEffects* effects) { loop_->OnComputed(result, now, effects); });
    });
  });
}

void Worker::Do(const StartEvaluation& effect) {
  ForgetPulls(effect.buffer);
  compute_->Do([this, effect] {
    const EvaluationResult result = computer_->Evaluate(effect.task, parameters_[effect.buffer]);
    events_.PostAlways([this, result] {
      Deliver([&](absl::Time now, WorkerEffects* effects) { loop_->OnEvaluated(result, now, effects); });
    });
  });
}

void Worker::Do(const UseShardMap& effect) {
  const absl::Status status = TakeMap(effect.map);
  if (!status.ok()) FailNow(status, false);
}

absl::Status Worker::TakeMap(const ShardMap& map) {
  RETURN_IF_ERROR(ValidateShardMap(map));
  RETURN_IF_ERROR(CheckVariables(map, computer_->variables()));
  if (!gradients_) {
    for (int i = 0; i < 2; ++i) {
      ASSIGN_OR_RETURN(ParameterMemory memory, ParameterMemory::Create(computer_->variables()));
      parameters_.push_back(std::move(memory));
      versions_[i].resize(map.shards_size());
    }
    ASSIGN_OR_RETURN(gradients_, ParameterMemory::Create(computer_->variables()));
  }
  if (versions_[0].size() != static_cast<size_t>(map.shards_size())) {
    return absl::FailedPreconditionError(absl::StrCat("shard map ", map.version(), ": expected ", versions_[0].size(),
                                                      " shards as before, got ", map.shards_size()));
  }
  return ps_client_->UseShardMap(map);
}

void Worker::FailNow(const absl::Status& status, bool fatal_for_job) {
  failing_ = true;
  LeaveRequest request;
  request.set_incarnation(loop_->incarnation());
  request.set_failed(true);
  request.set_fatal_for_job(fatal_for_job);
  request.set_reason(std::string(status.message()));
  chief_->Leave(request, [this, status](const absl::StatusOr<LeaveResponse>&) {
    // Answered or not: the lease lapses by itself.
    events_.PostAlways([this, status] { exit_status_ = status; });
  });
}

}  // namespace lagrange

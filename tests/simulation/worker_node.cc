// A worker's simulated shell around its step loop, and what befalls worker processes.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/nodes.h"

namespace lagrange::simulation {

void Cluster::StartWorker() {
  auto worker = std::make_unique<Worker>();
  worker->id = next_worker_id_++;
  worker->process_id = chance_.Bits();
  StepLoopOptions options;
  const ConsistencySpec& consistency = job_.consistency();
  const bool bsp = consistency.has_bsp();
  options.prefetch = !bsp && !(consistency.has_ssp() && consistency.ssp().staleness() == 0);
  options.acquire_ahead = !bsp;
  options.request_timeout = absl::Seconds(2);
  options.chief_timeout = kCallDeadline;
  options.report_interval = absl::Milliseconds(100);
  options.heartbeat_interval = absl::Milliseconds(500);
  options.stop_patience = absl::Seconds(5);
  worker->loop = NewStepLoop(options);
  worker->loop->UseCutter(*cutter_);
  const uint64_t id = worker->id;
  workers_[id] = std::move(worker);
  After(absl::Milliseconds(chance_.Below(300)),
        [this, id] { OnWorker(id, [this](StepLoop* loop, WorkerEffects* effects) { loop->Start(now_, effects); }); });
}

void Cluster::ScheduleProcessFaults() {
  // Over the time that a run without faults takes, and a little more.
  const auto schedule = [this](int64_t most, void (Cluster::*fault)()) {
    for (int64_t i = chance_.Below(most + 1); i > 0; --i) {
      After(absl::Milliseconds(chance_.Below(6000)), [this, fault] { (this->*fault)(); });
    }
  };
  schedule(2, &Cluster::CrashWorker);
  schedule(1, &Cluster::PauseWorker);
  schedule(1, &Cluster::StopWorker);
  schedule(1, &Cluster::CrashChief);
}

Cluster::Worker* Cluster::PickWorker() {
  if (workers_.empty() || chief_->done) return nullptr;
  auto at = workers_.begin();
  std::advance(at, chance_.Below(static_cast<int64_t>(workers_.size())));
  return at->second.get();
}

void Cluster::CrashWorker() {
  Worker* worker = PickWorker();
  if (worker == nullptr) return;
  ++result_.faults[static_cast<int>(Fault::kWorkerCrash)];
  // Its connections break, and the ps hear of that now, later or not at all.
  const uint64_t id = worker->id;
  for (const auto& ps : ps_) {
    if (!chance_.Happens(0.7)) continue;
    After(absl::Milliseconds(chance_.Below(2000)), [this, id, ps = ps.get()] {
      std::vector<RequestToken> tokens;
      for (const auto& [token, request] : ps->requests) {
        if (request.worker_id == id) tokens.push_back(token);
      }
      ps->engine->Forget(tokens);
    });
  }
  Trace("fault: worker process ", id, " dies");
  RemoveWorker(id);
  ReplaceWorker();
}

void Cluster::ReplaceWorker() {
  After(absl::Milliseconds(200 + chance_.Below(4000)), [this] {
    if (!chief_->done) StartWorker();
  });
}

void Cluster::PauseWorker() {
  Worker* worker = PickWorker();
  if (worker == nullptr) return;
  ++result_.faults[static_cast<int>(Fault::kWorkerPause)];
  worker->faulted = true;
  Trace("fault: worker process ", worker->id, " stands still");
  worker->paused_until = now_ + kWorkerLease + absl::Milliseconds(chance_.Below(4000));
  waits_.OnWorkerGone(worker->loop->incarnation());
}

void Cluster::StopWorker() {
  Worker* worker = PickWorker();
  if (worker == nullptr) return;
  ++result_.faults[static_cast<int>(Fault::kWorkerStop)];
  worker->faulted = true;
  Trace("fault: worker process ", worker->id, " is asked to leave");
  OnWorker(worker->id, [this](StepLoop* loop, WorkerEffects* effects) { loop->OnStopRequested(now_, effects); });
  ReplaceWorker();
}

void Cluster::RemoveWorker(uint64_t worker_id) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  waits_.OnWorkerGone(found->second->loop->incarnation());
  workers_.erase(found);
}

void Cluster::OnWorker(uint64_t worker_id, std::function<void(StepLoop*, WorkerEffects*)> event) {
  const auto found = workers_.find(worker_id);
  if (found == workers_.end()) return;
  Worker* worker = found->second.get();
  if (worker->paused_until > now_) {
    return At(worker->paused_until, [this, worker_id, event = std::move(event)] { OnWorker(worker_id, event); });
  }
  WorkerEffects effects;
  event(worker->loop.get(), &effects);
  for (const WorkerEffect& effect : effects) {
    // WorkerExit removes it.
    if (workers_.count(worker_id) != 0) RunWorkerEffect(worker, effect);
  }
}

template <typename Response>
void Cluster::CallChief(uint64_t worker_id, uint64_t call_id, std::function<Response(ChiefCore*, ChiefEffects*)> call,
                        void (StepLoop::*answer)(uint64_t, const Response&, absl::Time, WorkerEffects*)) {
  Call(
      kCallDeadline,
      [this, worker_id, call_id, call, answer]() -> std::optional<Action> {
        if (chief_->core == nullptr) return std::nullopt;
        ChiefEffects effects;
        const Response response = call(chief_->core.get(), &effects);
        Trace("worker ", worker_id, " is answered ", response.ShortDebugString().substr(0, 160));
        ApplyChiefEffects(&effects);
        return [this, worker_id, call_id, answer, response] {
          OnWorker(worker_id, [this, call_id, answer, response](StepLoop* loop, WorkerEffects* out) {
            (loop->*answer)(call_id, response, now_, out);
          });
        };
      },
      [this, worker_id, call_id] { FailChiefCall(worker_id, call_id, "no answer"); });
}

void Cluster::RunWorkerEffect(Worker* worker, const WorkerEffect& effect) {
  if (const auto* pull = std::get_if<SendPull>(&effect)) return SendPullToPs(worker, *pull);
  if (const auto* push = std::get_if<SendPush>(&effect)) return SendPushToPs(worker, *push);
  if (const auto* compute = std::get_if<StartCompute>(&effect)) return Compute(worker, *compute);
  if (const auto* evaluation = std::get_if<StartEvaluation>(&effect)) return Evaluate(worker, *evaluation);
  if (const auto* exit = std::get_if<WorkerExit>(&effect)) return OnExit(worker, exit->status);
  if (const auto* map = std::get_if<UseShardMap>(&effect)) {
    worker->map = map->map;
    return;
  }
  RunChiefCall(worker, effect);
}

void Cluster::Compute(Worker* worker, const StartCompute& compute) {
  std::vector<ShardSnapshot> views;
  for (const auto& [shard, view] : worker->buffers[compute.buffer].shards) views.push_back(view);
  cuts_->OnRead(compute.key, views);
  ComputeResult result;
  result.example_count = cutter_->ExamplesIn(compute.key);
  result.loss_sum = 0.5 * static_cast<double>(result.example_count);
  // One step in ten is a straggler's.
  const int64_t most = chance_.Happens(0.1) ? 1500 : 150;
  After(absl::Milliseconds(20 + chance_.Below(most)), [this, id = worker->id, result] {
    OnWorker(id, [this, result](StepLoop* loop, WorkerEffects* out) { loop->OnComputed(result, now_, out); });
  });
}

void Cluster::Evaluate(Worker* worker, const StartEvaluation& evaluation) {
  EvaluationResult result;
  result.example_count = evaluation.task.record_count();
  After(absl::Milliseconds(5 + chance_.Below(50)), [this, id = worker->id, result] {
    OnWorker(id, [this, result](StepLoop* loop, WorkerEffects* out) { loop->OnEvaluated(result, now_, out); });
  });
}

void Cluster::RunChiefCall(Worker* worker, const WorkerEffect& effect) {
  const uint64_t id = worker->id;
  if (const auto* call = std::get_if<CallRegister>(&effect)) {
    RegisterWorker(worker, call->call_id);
  } else if (const auto* report = std::get_if<CallReportBatches>(&effect)) {
    ReportBatches(worker, *report);
  } else if (const auto* beat = std::get_if<CallHeartbeat>(&effect)) {
    CallChief<HeartbeatResponse>(
        id, beat->call_id,
        [this, request = beat->request](ChiefCore* core, ChiefEffects* out) {
          return core->Heartbeat(request, now_, out);
        },
        &StepLoop::OnHeartbeatResponse);
  } else if (const auto* acquire = std::get_if<CallAcquireWork>(&effect)) {
    CallChief<AcquireWorkResponse>(
        id, acquire->call_id,
        [this, request = acquire->request](ChiefCore* core, ChiefEffects* out) {
          return core->AcquireWork(request, now_, out);
        },
        &StepLoop::OnAcquireWorkResponse);
  } else if (const auto* evaluated = std::get_if<CallReportEvaluation>(&effect)) {
    CallChief<ReportEvaluationResponse>(
        id, evaluated->call_id,
        [this, request = evaluated->request](ChiefCore* core, ChiefEffects* out) {
          return core->ReportEvaluation(request, now_, out);
        },
        &StepLoop::OnReportEvaluationResponse);
  } else if (const auto* leave = std::get_if<CallLeave>(&effect)) {
    LeaveChief(id, *leave);
  }
}

void Cluster::FailChiefCall(uint64_t worker_id, uint64_t call_id, const std::string& why) {
  OnWorker(worker_id, [this, call_id, why](StepLoop* loop, WorkerEffects* out) {
    loop->OnChiefCallFailed(call_id, absl::UnavailableError(why), now_, out);
  });
}

void Cluster::LeaveChief(uint64_t id, const CallLeave& leave) {
  Call(
      kCallDeadline,
      [this, id, leave]() -> std::optional<Action> {
        if (chief_->core == nullptr) return std::nullopt;
        ChiefEffects effects;
        chief_->core->Leave(leave.request, now_, &effects);
        ApplyChiefEffects(&effects);
        return [this, id, call_id = leave.call_id] {
          OnWorker(id,
                   [this, call_id](StepLoop* loop, WorkerEffects* out) { loop->OnLeaveResponse(call_id, now_, out); });
        };
      },
      [this, id, leave] { FailChiefCall(id, leave.call_id, "no answer"); });
}

void Cluster::RegisterWorker(Worker* worker, uint64_t call_id) {
  RegisterRequest request;
  request.set_role(WORKER);
  request.set_protocol_version(kProtocolVersion);
  request.set_process_id(worker->process_id);
  request.set_previous_incarnation(worker->loop->incarnation());
  request.set_has_model(true);
  for (int64_t i = 0; i < kVariableCount; ++i) {
    VariableSpec* variable = request.add_variables();
    variable->set_name(absl::StrCat("v", i));
    variable->add_shape(numbering_.count());
    variable->mutable_initializer()->mutable_zeros();
  }
  request.set_train_records(kTrainRecords);
  request.set_test_records(kTestRecords);
  waits_.OnWorkerGone(worker->loop->incarnation());
  const uint64_t id = worker->id;
  Call(
      kCallDeadline,
      [this, id, call_id, request]() -> std::optional<Action> {
        if (chief_->core == nullptr) return std::nullopt;
        ChiefEffects effects;
        const RegisterResponse response = chief_->core->Register(request, now_, &effects);
        Trace("worker ", id, " registers: incarnation ", response.incarnation(), " ", response.message());
        ApplyChiefEffects(&effects);
        if (response.outcome() == RegisterResponse::REFUSED_REGISTRATION) {
          // All seats are taken: the process ends, and what watches over it starts another one.
          return [this, id] {
            RemoveWorker(id);
            ReplaceWorker();
          };
        }
        // No seat yet (the dead process's is still taken): the real shell asks again after a pause, as here.
        if (response.outcome() == RegisterResponse::JOB) {
          return [this, id, call_id, response] { FailChiefCall(id, call_id, response.message()); };
        }
        return [this, id, call_id, response] {
          OnWorker(id, [this, call_id, response](StepLoop* loop, WorkerEffects* out) {
            loop->OnRegisterResponse(call_id, response, now_, out);
          });
        };
      },
      [this, id, call_id] { FailChiefCall(id, call_id, "no answer"); });
}

void Cluster::SendPullToPs(Worker* worker, const SendPull& pull) {
  Trace("worker ", worker->id, " pulls from ps ", pull.ps_index, ": ", pull.header.ShortDebugString());
  worker->outstanding.emplace(pull.ps_index, pull.request_id);
  worker->pull_buffers[pull.request_id] = pull.buffer;
  Deliver([this, id = worker->id, pull] { PullAtPs(id, pull); });
}

void Cluster::SendPushToPs(Worker* worker, const SendPush& push) {
  Trace("worker ", worker->id, " pushes to ps ", push.ps_index, ": ", push.header.ShortDebugString());
  worker->outstanding.emplace(push.ps_index, push.request_id);
  std::vector<uint64_t> versions(kVariableCount, 0);
  for (const auto& [shard, view] : worker->buffers[push.buffer].shards) versions[shard] = view.version;
  Deliver([this, id = worker->id, push, versions] { PushAtPs(id, push, versions); });
}

void Cluster::ReportBatches(Worker* worker, const CallReportBatches& call) {
  for (const auto& ps : ps_) LookAtShards(ps->index);
  for (const BatchDone& done : call.request.done()) Fail(applied_once_->OnDone(done.key()));
  CallChief<ReportBatchesResponse>(
      worker->id, call.call_id,
      [this, request = call.request](ChiefCore* core, ChiefEffects* out) {
        return core->ReportBatches(request, now_, out);
      },
      &StepLoop::OnReportBatchesResponse);
}

void Cluster::OnExit(Worker* worker, const absl::Status& status) {
  if (!status.ok() && !worker->faulted) {
    Fail(absl::InternalError(absl::StrCat("invariant 8: worker process ", worker->id, " ended: ", status.ToString())));
  }
  // Not destroyed here, in the middle of its own effects.
  const uint64_t id = worker->id;
  waits_.OnWorkerGone(worker->loop->incarnation());
  After(absl::ZeroDuration(), [this, id] { RemoveWorker(id); });
}

}  // namespace lagrange::simulation

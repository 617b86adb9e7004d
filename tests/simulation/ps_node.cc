// A ps's simulated shell around its engine, with the bugs that can be planted in it.

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "tests/simulation/cluster.h"
#include "tests/simulation/nodes.h"

namespace lagrange::simulation {

void Cluster::StartPs(int index) {
  auto ps = std::make_unique<Ps>();
  ps->index = index;
  ps->process_id = chance_.Bits();
  ps->engine = NewSingleThreadEngine(EngineOptions());
  const ConsistencySpec& consistency = job_.consistency();
  const int64_t bound = consistency.has_bsp() ? 0 : consistency.has_ssp() ? consistency.ssp().staleness() : -1;
  ps->staleness = std::make_unique<StalenessChecker>(bound);
  ps_.push_back(std::move(ps));
  After(absl::Milliseconds(chance_.Below(300)), [this, index] { RegisterPs(index); });
}

void Cluster::RegisterPs(int index) {
  RegisterRequest request;
  request.set_role(PS);
  request.set_protocol_version(kProtocolVersion);
  request.set_process_id(ps_[index]->process_id);
  request.set_address(absl::StrCat("ps-", index));
  request.set_task_index(index);
  request.set_directory_token("token");
  const Action again = [this, index] { After(absl::Milliseconds(200), [this, index] { RegisterPs(index); }); };
  Call(
      kCallDeadline,
      [this, request, index, again]() -> std::optional<Action> {
        if (chief_->core == nullptr) return std::nullopt;
        ChiefEffects effects;
        const RegisterResponse response = chief_->core->Register(request, now_, &effects);
        ApplyChiefEffects(&effects);
        return [this, response, index, again] {
          if (response.outcome() != RegisterResponse::REGISTERED) return again();
          Ps* ps = ps_[index].get();
          const bool first = ps->incarnation == 0;
          ps->incarnation = response.incarnation();
          ps->engine->SetIdentity(response.incarnation(), response.term(), response.generation());
          if (first) BeatPs(index);
        };
      },
      again);
}

void Cluster::BeatPs(int index) {
  Ps* ps = ps_[index].get();
  if (ps->finished) return;
  HeartbeatRequest request;
  request.set_incarnation(ps->incarnation);
  *request.mutable_staleness() = ps->engine->Staleness();
  Call(
      kCallDeadline,
      [this, request]() -> std::optional<Action> {
        if (chief_->core == nullptr) return std::nullopt;
        ChiefEffects effects;
        chief_->core->Heartbeat(request, now_, &effects);
        ApplyChiefEffects(&effects);
        return [] {};
      },
      [] {});
  After(absl::Milliseconds(500), [this, index] { BeatPs(index); });
}

absl::StatusOr<PsCommandResult> Cluster::ExecuteOnPs(int index, const PsCommand& given) {
  Ps* ps = ps_[index].get();
  PsCommand command = given;
  if (options_.planted == Planted::kNoBound && command.has_install_shards()) {
    command.mutable_install_shards()->mutable_job()->mutable_consistency()->mutable_asp();
  }
  if (options_.planted == Planted::kNoEviction && command.has_set_membership()) {
    auto* changes = command.mutable_set_membership()->mutable_changes();
    for (int i = changes->size() - 1; i >= 0; --i) {
      if (changes->Get(i).state() == MemberChange::EVICTED) changes->DeleteSubrange(i, 1);
    }
    if (changes->empty()) return PsCommandResult();
  }
  if (command.has_install_shards()) {
    ps->shards.clear();
    for (const ShardPlacement& shard : command.install_shards().map().shards()) {
      if (shard.ps_index() == index) ps->shards.push_back(shard.shard());
    }
  }
  PsEffects effects;
  absl::StatusOr<PsCommandResult> result = ps->engine->Execute(command, &effects);
  if (!result.ok()) return result;
  if (command.has_set_membership()) ps->staleness->OnMembership(command.set_membership(), *result);
  if (command.has_write_checkpoint()) {
    const absl::StatusOr<std::vector<ShardSnapshot>> fork = ps->engine->GetFork(command.write_checkpoint().cut());
    if (!fork.ok()) return fork.status();
    const bool live = options_.planted == Planted::kLiveFork;
    cuts_->OnFork(command.write_checkpoint().cut(), live ? ps->engine->Snapshot() : *fork);
    CheckpointFile* file = result->add_files();
    file->set_name(absl::StrCat("ps-", index, ".safetensors"));
    file->set_size_bytes(1);
  }
  if (command.has_shut_down()) ps->finished = true;
  ApplyPsEffects(index, effects);
  CheckShards(index);
  return result;
}

void Cluster::PullAtPs(uint64_t worker_id, const SendPull& pull) {
  Ps* ps = ps_[pull.ps_index].get();
  if (ps->finished) return;
  const RequestToken token = ps->next_token++;
  ps->requests[token] = {worker_id, pull.header, pull.request_id, true};
  ps->staleness->OnRequest(pull.header);
  if (pull.header.pinned_cut() == 0 && workers_.count(worker_id) != 0) {
    waits_.OnPullArrived(pull.ps_index, pull.header.incarnation(), pull.request_id, now_);
  }
  PsEffects effects;
  ps->engine->Pull(pull.header, pull.request_id, ps->shards, token, &effects);
  ApplyPsEffects(pull.ps_index, effects);
  // Its clock may have closed a round.
  CheckShards(pull.ps_index);
}

void Cluster::PushAtPs(uint64_t worker_id, const SendPush& push, const std::vector<uint64_t>& versions) {
  Ps* ps = ps_[push.ps_index].get();
  if (ps->finished) return;
  const RequestToken token = ps->next_token++;
  ps->requests[token] = {worker_id, push.header, push.request_id, false};
  ps->staleness->OnRequest(push.header);
  RequestHeader header = push.header;
  if (options_.planted == Planted::kNoDedupe) header.mutable_key()->set_epoch(ps->fresh_epoch++);
  PsEffects effects;
  if (ps->engine->BeginPush(header, push.request_id, token, &effects)) {
    std::vector<float> gradient(numbering_.count(), 0.f);
    gradient[numbering_.NumberOf(push.header.key())] = -1;
    const std::vector<uint32_t> shards = push.shards.empty() ? ps->shards : push.shards;
    const size_t cut_off = Strikes(Fault::kPushCut, 0.02) ? chance_.Below(shards.size() + 1) : shards.size() + 1;
    std::vector<ShardResult> results;
    for (size_t i = 0; i < shards.size() && i < cut_off; ++i) {
      if (options_.planted == Planted::kLostPart && i + 1 == shards.size()) {
        results.emplace_back().set_shard(shards[i]);
        results.back().set_outcome(APPLIED);
        continue;
      }
      absl::StatusOr<ShardResult> result =
          ps->engine->ApplyPart(header, shards[i], versions[shards[i]], absl::MakeConstSpan(gradient));
      if (!result.ok()) return Fail(result.status());
      results.push_back(*std::move(result));
      CheckShards(push.ps_index);
    }
    if (cut_off > shards.size()) {
      ps->engine->EndPush(header, push.request_id, token, std::move(results), &effects);
    } else {
      ps->engine->Forget({token});
      ps->requests.erase(token);
    }
  }
  ApplyPsEffects(push.ps_index, effects);
  CheckShards(push.ps_index);
}

void Cluster::ApplyPsEffects(int index, const PsEffects& effects) {
  Ps* ps = ps_[index].get();
  for (const PullAnswer& answer : effects.pulls) {
    const auto found = ps->requests.find(answer.token);
    if (found == ps->requests.end()) continue;
    const Ps::Request request = found->second;
    ps->requests.erase(found);
    waits_.OnPullAnswered(index, request.header.incarnation(), request.request_id);
    Trace("ps ", index, " answers the pull ", request.request_id, " of worker ", request.worker_id, ": ",
          ReplyCode_Name(answer.header.code()), " ", answer.header.message());
    if (answer.header.code() == OK) Fail(ps->staleness->OnPullAnswered(request.header));
    Deliver([this, index, request, answer] {
      const auto worker = workers_.find(request.worker_id);
      if (worker == workers_.end()) return;
      if (worker->second->outstanding.erase({index, request.request_id}) == 0) return;
      const int buffer = worker->second->pull_buffers[request.request_id];
      for (const ShardView& view : answer.shards) {
        ShardSnapshot& kept = worker->second->buffers[buffer].shards[view.shard];
        kept.shard = view.shard;
        kept.version = view.version;
        kept.parameters = view.parameters;
      }
      OnWorker(request.worker_id, [this, index, request, answer](StepLoop* loop, WorkerEffects* out) {
        loop->OnPullReply(index, request.request_id, answer.header, now_, out);
      });
    });
  }
  for (const PushAnswer& answer : effects.pushes) {
    const auto found = ps->requests.find(answer.token);
    if (found == ps->requests.end()) continue;
    const Ps::Request request = found->second;
    ps->requests.erase(found);
    Trace("ps ", index, " answers the push ", request.request_id, " of worker ", request.worker_id, ": ",
          answer.header.ShortDebugString());
    Deliver([this, index, request, answer] {
      const auto worker = workers_.find(request.worker_id);
      if (worker == workers_.end() || worker->second->outstanding.erase({index, request.request_id}) == 0) return;
      OnWorker(request.worker_id, [this, index, request, answer](StepLoop* loop, WorkerEffects* out) {
        loop->OnPushReply(index, request.request_id, answer.header, now_, out);
      });
    });
  }
}

void Cluster::CheckShards(int index) {
  if (options_.seed % 2 == 1 && !chance_.Happens(0.2)) return;
  LookAtShards(index);
}

void Cluster::LookAtShards(int index) { Fail(applied_once_->OnShards(ps_[index]->engine->Snapshot())); }

}  // namespace lagrange::simulation

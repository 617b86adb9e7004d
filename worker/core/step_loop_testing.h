// Drives a StepLoop by hand: events in, effects picked out by type. For tests.
//
// Two ps, 100 records in batches of 10, leases of 3 batches (lease 3 has one). The clock stands still unless a test
// moves it. Caller synchronizes.

#ifndef WORKER_CORE_STEP_LOOP_TESTING_H_
#define WORKER_CORE_STEP_LOOP_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "worker/core/step_loop.h"

namespace lagrange {

inline std::string KeyText(const BatchKey& key) {
  return absl::StrCat(key.epoch(), "/", key.lease(), "/", key.batch());
}

class StepLoopDriver {
 public:
  explicit StepLoopDriver(const StepLoopOptions& options = {}) : loop(NewStepLoop(options)) {
    loop->UseCutter(*BatchCutter::Create({100, 10, 30, 1}));
  }

  // Effects of type T that nobody has taken yet, in order; others stay.
  template <typename T>
  std::vector<T> Take() {
    std::vector<T> taken;
    WorkerEffects rest;
    for (WorkerEffect& effect : effects) {
      if (std::holds_alternative<T>(effect)) {
        taken.push_back(std::get<T>(std::move(effect)));
      } else {
        rest.push_back(std::move(effect));
      }
    }
    effects = std::move(rest);
    return taken;
  }

  template <typename T>
  T TakeOne() {
    std::vector<T> taken = Take<T>();
    EXPECT_EQ(taken.size(), 1u);
    return taken.empty() ? T() : taken.front();
  }

  template <typename T>
  bool Has() const {
    for (const WorkerEffect& effect : effects) {
      if (std::holds_alternative<T>(effect)) return true;
    }
    return false;
  }

  void Start() { loop->Start(now, &effects); }

  void Register(uint64_t incarnation = 7, uint64_t term = 1, uint64_t generation = 1) {
    RegisterResponse response;
    response.set_outcome(RegisterResponse::REGISTERED);
    response.set_incarnation(incarnation);
    response.set_term(term);
    response.set_generation(generation);
    loop->OnRegisterResponse(TakeOne<CallRegister>().call_id, response, now, &effects);
  }

  static ShardMap MapOf(uint64_t version, int ps_of_shard_1 = 1) {
    ShardMap map;
    map.set_version(version);
    for (int i = 0; i < 2; ++i) {
      map.add_ps()->set_ps_index(i);
      map.add_shards()->set_shard(i);
      map.mutable_shards(i)->set_ps_index(i == 0 ? 0 : ps_of_shard_1);
    }
    return map;
  }

  static AcquireWorkResponse LeaseAnswer(int64_t lease, std::vector<int32_t> settled = {}) {
    AcquireWorkResponse response;
    response.set_term(1);
    response.set_generation(1);
    response.mutable_lease()->set_lease(lease);
    for (const int32_t batch : settled) response.mutable_lease()->add_settled_batches(batch);
    return response;
  }

  void AnswerAcquire(const AcquireWorkResponse& response) {
    loop->OnAcquireWorkResponse(TakeOne<CallAcquireWork>().call_id, response, now, &effects);
  }

  // Registered, with a lease whose first step pulls.
  void Join(int64_t lease = 0, std::vector<int32_t> settled = {}) {
    Start();
    Register();
    AcquireWorkResponse response = LeaseAnswer(lease, std::move(settled));
    *response.mutable_shard_map() = MapOf(1);
    AnswerAcquire(response);
  }

  static ReplyHeader Reply(ReplyCode code, uint64_t cut = 1) {
    ReplyHeader reply;
    reply.set_code(code);
    reply.set_term(1);
    reply.set_generation(1);
    reply.set_map_version(1);
    reply.set_cut(cut);
    return reply;
  }

  void Answer(const SendPull& pull, const ReplyHeader& reply) {
    loop->OnPullReply(pull.ps_index, pull.request_id, reply, now, &effects);
  }
  void Answer(const SendPush& push, const ReplyHeader& reply) {
    loop->OnPushReply(push.ps_index, push.request_id, reply, now, &effects);
  }
  template <typename T>
  void AnswerAll(ReplyCode code = OK) {
    for (const T& request : Take<T>()) Answer(request, Reply(code));
  }

  void Computed(absl::Status status = absl::OkStatus()) {
    EXPECT_EQ(Take<StartCompute>().size(), 1u);
    loop->OnComputed({10, 23.0, std::move(status)}, now, &effects);
  }

  // A whole step: pulls (and a prefetch's) answered, computed, pushes answered.
  void Step() {
    AnswerAll<SendPull>();
    AnswerAll<SendPull>();
    Computed();
    AnswerAll<SendPush>();
  }

  void AnswerReport(std::vector<BatchVerdict> verdicts) {
    ReportBatchesResponse response;
    response.set_term(1);
    response.set_generation(1);
    for (const BatchVerdict verdict : verdicts) response.add_verdicts(verdict);
    loop->OnReportBatchesResponse(TakeOne<CallReportBatches>().call_id, response, now, &effects);
  }

  // REQUIRES: one was sent. Answers the last.
  void AnswerHeartbeat(Directive directive, const std::string& message = "", uint64_t term = 1) {
    HeartbeatResponse response;
    response.set_term(term);
    response.set_generation(1);
    response.set_directive(directive);
    response.set_message(message);
    loop->OnHeartbeatResponse(Take<CallHeartbeat>().back().call_id, response, now, &effects);
  }

  void AdvanceBy(absl::Duration duration) {
    now += duration;
    loop->Tick(now, &effects);
  }

  std::unique_ptr<StepLoop> loop;
  absl::Time now = absl::FromUnixSeconds(1000);
  WorkerEffects effects;
};

}  // namespace lagrange

#endif  // WORKER_CORE_STEP_LOOP_TESTING_H_

// What the engine's tests share: a small job, and one engine driven by hand, a call at a time.

#ifndef PS_CORE_ENGINE_TESTING_H_
#define PS_CORE_ENGINE_TESTING_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/version.h"
#include "ps/core/engine.h"

namespace lagrange {

using Floats = std::vector<float>;

inline Floats Values(const BufferRef& buffer) { return Floats(buffer.values().begin(), buffer.values().end()); }

// One variable "w" of shard_count * shard_elements elements at zero, trained by sgd{1}, so that a gradient of -1
// adds 1.
struct EngineTestJob {
  int shard_count = 2;
  int64_t shard_elements = 3;
  std::string consistency = "asp {}";
  std::string optimizer = "sgd { learning_rate: 1 }";
  uint64_t first_cut = 10;
};

constexpr uint64_t kTestPsIncarnation = 1000;
constexpr int64_t kTestLeases = 4;
constexpr int64_t kTestBatches = 50000;

class EngineDriver {
 public:
  EngineDriver(std::unique_ptr<Engine> engine, const EngineTestJob& job) : engine_(std::move(engine)), job_(job) {
    engine_->SetIdentity(kTestPsIncarnation, 1, 1);
  }

  Engine& engine() { return *engine_; }
  PsEffects& effects() { return effects_; }

  PsCommand Command() const {
    PsCommand command;
    command.set_term(1);
    command.set_generation(1);
    command.set_incarnation(kTestPsIncarnation);
    return command;
  }
  PsCommand InstallCommand() const {
    PsCommand command = Command();
    InstallShards* install = command.mutable_install_shards();
    install->set_cut(job_.first_cut);
    install->set_leases_per_epoch(kTestLeases);
    install->set_batches_per_lease(kTestBatches);
    Parse(job_.consistency, install->mutable_job()->mutable_consistency());
    Parse(job_.optimizer, install->mutable_job()->mutable_optimizer());
    ShardMap* map = install->mutable_map();
    map->set_version(1);
    PsAddress* ps = map->add_ps();
    ps->set_address("ps:1");
    ps->set_incarnation(kTestPsIncarnation);
    VariableSpec* variable = map->add_variables();
    variable->set_name("w");
    variable->add_shape(job_.shard_count * job_.shard_elements);
    variable->mutable_initializer()->mutable_zeros();
    for (int i = 0; i < job_.shard_count; ++i) {
      ShardPlacement* shard = map->add_shards();
      shard->set_shard(i);
      shard->set_row_begin(i * job_.shard_elements);
      shard->set_row_end((i + 1) * job_.shard_elements);
      shard->set_element_begin(shard->row_begin());
      shard->set_element_end(shard->row_end());
    }
    return command;
  }
  absl::StatusOr<PsCommandResult> Execute(const PsCommand& command) { return engine_->Execute(command, &effects_); }
  void Install() { ASSERT_TRUE(Execute(InstallCommand()).ok()) << Execute(InstallCommand()).status(); }

  absl::StatusOr<PsCommandResult> ChangeMember(uint64_t incarnation, MemberChange::State state, uint64_t sequence) {
    PsCommand command = Command();
    MemberChange* change = command.mutable_set_membership()->add_changes();
    change->set_incarnation(incarnation);
    change->set_state(state);
    change->set_sequence(sequence);
    return Execute(command);
  }
  // The entry clock, or -1.
  int64_t Join(uint64_t incarnation, uint64_t sequence = 1) {
    const auto result = ChangeMember(incarnation, MemberChange::JOINED, sequence);
    return result.ok() && result->joined_size() == 1 ? result->joined(0).clock() : -1;
  }
  absl::StatusOr<PsCommandResult> AnnounceCut(uint64_t cut, int64_t epoch = 0) {
    PsCommand command = Command();
    command.mutable_announce_cut()->set_cut(cut);
    command.mutable_announce_cut()->set_epoch(epoch);
    return Execute(command);
  }

  RequestHeader Header(uint64_t incarnation, int64_t clock) const {
    RequestHeader header;
    header.set_protocol_version(kProtocolVersion);
    header.set_term(1);
    header.set_generation(1);
    header.set_map_version(1);
    header.set_incarnation(incarnation);
    header.set_clock(clock);
    header.set_step_clock(clock);
    return header;
  }
  RequestHeader PushHeader(uint64_t incarnation, int64_t clock, int32_t batch, uint64_t stamp = 0) const {
    RequestHeader header = Header(incarnation, clock);
    header.mutable_key()->set_batch(batch);
    header.set_example_count(1);
    header.set_cut(stamp);
    return header;
  }

  // The token; the answer is in effects() now or later.
  RequestToken Pull(const RequestHeader& header, const std::vector<uint32_t>& shards = {}) {
    const RequestToken token = ++last_token_;
    engine_->Pull(header, token, shards, token, &effects_);
    return token;
  }
  // One gradient value for all elements of all shards.
  RequestToken Push(const RequestHeader& header, float gradient) {
    const RequestToken token = ++last_token_;
    if (!engine_->BeginPush(header, token, token, &effects_)) return token;
    std::vector<ShardResult> results;
    for (int i = 0; i < job_.shard_count; ++i) results.push_back(PushPart(header, i, gradient));
    engine_->EndPush(header, token, token, std::move(results), &effects_);
    return token;
  }
  ShardResult PushPart(const RequestHeader& header, uint32_t shard, float gradient) {
    auto result = engine_->ApplyPart(header, shard, 0, Floats(job_.shard_elements, gradient));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ShardResult();
  }

  // Null while there is no answer.
  const PullAnswer* AnsweredPull(RequestToken token) const {
    for (const PullAnswer& answer : effects_.pulls) {
      if (answer.token == token) return &answer;
    }
    return nullptr;
  }
  const PushAnswer* AnsweredPush(RequestToken token) const {
    for (const PushAnswer& answer : effects_.pushes) {
      if (answer.token == token) return &answer;
    }
    return nullptr;
  }
  // REPLY_CODE_UNSPECIFIED while there is no answer.
  ReplyCode PullCode(RequestToken token) const {
    const PullAnswer* answer = AnsweredPull(token);
    return answer == nullptr ? REPLY_CODE_UNSPECIFIED : answer->header.code();
  }
  ReplyCode PushCode(RequestToken token) const {
    const PushAnswer* answer = AnsweredPush(token);
    return answer == nullptr ? REPLY_CODE_UNSPECIFIED : answer->header.code();
  }
  // The outcomes by shard, when the push was answered OK.
  std::vector<ShardOutcome> Outcomes(RequestToken token) const {
    std::vector<ShardOutcome> outcomes;
    const PushAnswer* answer = AnsweredPush(token);
    if (answer == nullptr) return outcomes;
    for (const ShardResult& result : answer->header.results()) outcomes.push_back(result.outcome());
    return outcomes;
  }
  // All elements as they are now, shard after shard.
  Floats Now() const { return Concatenate(engine_->Snapshot()); }
  // At a cut; empty when it isn't held.
  Floats AtCut(uint64_t cut) const {
    const auto fork = engine_->GetFork(cut);
    return fork.ok() ? Concatenate(*fork) : Floats();
  }

 private:
  template <typename Message>
  static void Parse(const std::string& text, Message* message) {
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, message)) << text;
  }
  static Floats Concatenate(const std::vector<ShardSnapshot>& snapshots) {
    Floats all;
    for (const ShardSnapshot& snapshot : snapshots) {
      const Floats values = Values(snapshot.parameters);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  std::unique_ptr<Engine> engine_;
  const EngineTestJob job_;
  PsEffects effects_;
  RequestToken last_token_ = 0;
};

}  // namespace lagrange

#endif  // PS_CORE_ENGINE_TESTING_H_

// An Engine of plain arrays for tests and benchmarks of the transport: no clocks, no cuts, no optimizer.
//
// Thread-safe. A push's part replaces the shard's elements (or is only looked at), once for each batch key. What it is
// asked can be held back, dropped or refused, so that a test can be in the middle of things.

#ifndef PS_ARRAY_ENGINE_TESTING_H_
#define PS_ARRAY_ENGINE_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "ps/core/engine.h"

namespace lagrange {

class ArrayEngine final : public Engine {
 public:
  enum class OnPart { kReplace, kIgnore };

  explicit ArrayEngine(const std::vector<int64_t>& element_counts, OnPart on_part = OnPart::kReplace)
      : on_part_(on_part) {
    for (int64_t count : element_counts) {
      Shard shard;
      shard.parameters = BufferRef::Allocate(count);
      absl::Span<float> values = shard.parameters.MutableValues();
      std::fill(values.begin(), values.end(), 0.0f);
      shards_.push_back(std::move(shard));
    }
  }

  // ---- what a test does with it ----
  void HoldPulls() {
    absl::MutexLock lock(&mutex_);
    hold_pulls_ = true;
  }
  PsEffects ReleasePulls() {
    absl::MutexLock lock(&mutex_);
    hold_pulls_ = false;
    PsEffects effects;
    for (RequestToken token : held_pulls_) effects.pulls.push_back(Answer(token));
    held_pulls_.clear();
    return effects;
  }
  void WaitForHeldPulls(size_t count) {
    absl::MutexLock lock(&mutex_);
    while (held_pulls_.size() < count) changed_.Wait(&mutex_);
  }
  void DropNextPushAnswer() {
    absl::MutexLock lock(&mutex_);
    drop_next_push_answer_ = true;
  }
  void WaitForEndedPushes(int64_t count) {
    absl::MutexLock lock(&mutex_);
    while (ended_pushes_ < count) changed_.Wait(&mutex_);
  }
  void WaitForForgotten(size_t count) {
    absl::MutexLock lock(&mutex_);
    while (forgotten_.size() < count) changed_.Wait(&mutex_);
  }
  void RefuseToBegin(ReplyCode code) {
    absl::MutexLock lock(&mutex_);
    begin_code_ = code;
  }
  // The elements of a shard as the next pull sends them: also of a size that is wrong.
  void Replace(uint32_t shard, int64_t count) {
    absl::MutexLock lock(&mutex_);
    shards_[shard].parameters = BufferRef::Allocate(count);
  }
  int64_t applied_parts() const {
    absl::MutexLock lock(&mutex_);
    return applied_parts_;
  }
  int64_t ended_pushes() const {
    absl::MutexLock lock(&mutex_);
    return ended_pushes_;
  }
  std::vector<float> ValuesOf(uint32_t shard) const {
    absl::MutexLock lock(&mutex_);
    const absl::Span<const float> values = shards_[shard].parameters.values();
    return std::vector<float>(values.begin(), values.end());
  }

  // ---- Engine ----
  absl::StatusOr<PsCommandResult> Execute(const PsCommand& command, PsEffects* effects) override {
    return absl::UnimplementedError("ArrayEngine takes no commands");
  }
  absl::StatusOr<PsCommandResult> Restore(const PsCommand& command, std::vector<ShardSnapshot> shards) override {
    return absl::UnimplementedError("ArrayEngine takes no commands");
  }
  void SetIdentity(uint64_t incarnation, uint64_t term, uint64_t generation) override {}

  void Pull(const RequestHeader& header, uint64_t request_id, absl::Span<const uint32_t> shards, RequestToken token,
            PsEffects* effects) override {
    absl::MutexLock lock(&mutex_);
    if (!hold_pulls_) {
      effects->pulls.push_back(Answer(token));
      return;
    }
    held_pulls_.insert(token);
    changed_.SignalAll();
  }

  bool BeginPush(const RequestHeader& header, uint64_t request_id, RequestToken token, PsEffects* effects) override {
    absl::MutexLock lock(&mutex_);
    if (begin_code_ == OK) return true;
    PushAnswer answer;
    answer.token = token;
    answer.header.set_code(begin_code_);
    effects->pushes.push_back(std::move(answer));
    return false;
  }

  absl::StatusOr<ShardResult> ApplyPart(const RequestHeader& header, uint32_t shard, uint64_t pulled_version,
                                        absl::Span<const float> gradient) override {
    ShardResult result;
    result.set_shard(shard);
    result.set_outcome(APPLIED);
    if (on_part_ == OnPart::kIgnore) return result;
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (!std::isfinite(gradient[i])) {
        return absl::InvalidArgumentError(absl::StrCat("shard ", shard, ": gradient element ", i, " is not finite"));
      }
    }
    absl::MutexLock lock(&mutex_);
    Shard& place = shards_[shard];
    const BatchKey& key = header.key();
    if (!place.applied.insert({key.epoch(), key.lease(), key.batch()}).second) {
      result.set_outcome(DUPLICATE);
      return result;
    }
    if (!place.parameters.Unique()) {
      place.parameters = BufferRef::Allocate(static_cast<int64_t>(gradient.size()));
    }
    std::copy(gradient.begin(), gradient.end(), place.parameters.MutableValues().begin());
    ++place.version;
    ++applied_parts_;
    return result;
  }

  void EndPush(const RequestHeader& header, uint64_t request_id, RequestToken token, std::vector<ShardResult> results,
               PsEffects* effects) override {
    absl::MutexLock lock(&mutex_);
    ++ended_pushes_;
    changed_.SignalAll();
    if (std::exchange(drop_next_push_answer_, false)) return;
    PushAnswer answer;
    answer.token = token;
    answer.header.set_code(OK);
    for (ShardResult& result : results) *answer.header.add_results() = std::move(result);
    effects->pushes.push_back(std::move(answer));
  }

  void Forget(absl::Span<const RequestToken> tokens) override {
    absl::MutexLock lock(&mutex_);
    for (RequestToken token : tokens) {
      forgotten_.insert(token);
      held_pulls_.erase(token);
    }
    changed_.SignalAll();
  }

  absl::StatusOr<int64_t> ElementCountOf(uint32_t shard) const override {
    absl::MutexLock lock(&mutex_);
    if (shard >= shards_.size()) return absl::NotFoundError(absl::StrCat("shard ", shard, " isn't here"));
    return static_cast<int64_t>(shards_[shard].parameters.values().size());
  }
  absl::StatusOr<std::vector<ShardSnapshot>> GetFork(uint64_t cut) const override {
    return absl::NotFoundError("ArrayEngine has no forks");
  }
  std::vector<ShardSnapshot> Snapshot() const override { return {}; }
  StalenessStatistics Staleness() const override { return StalenessStatistics(); }
  int64_t LargestClock() const override { return 0; }

 private:
  struct Shard {
    uint64_t version = 0;
    BufferRef parameters;
    std::set<std::tuple<int64_t, int64_t, int32_t>> applied;
  };

  PullAnswer Answer(RequestToken token) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    PullAnswer answer;
    answer.token = token;
    answer.header.set_code(OK);
    answer.header.set_cut(9);
    for (size_t i = 0; i < shards_.size(); ++i) {
      answer.shards.push_back({static_cast<uint32_t>(i), shards_[i].version, shards_[i].parameters});
    }
    return answer;
  }

  const OnPart on_part_;
  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<Shard> shards_ ABSL_GUARDED_BY(mutex_);
  bool hold_pulls_ ABSL_GUARDED_BY(mutex_) = false;
  bool drop_next_push_answer_ ABSL_GUARDED_BY(mutex_) = false;
  ReplyCode begin_code_ ABSL_GUARDED_BY(mutex_) = OK;
  std::set<RequestToken> held_pulls_ ABSL_GUARDED_BY(mutex_);
  std::set<RequestToken> forgotten_ ABSL_GUARDED_BY(mutex_);
  int64_t applied_parts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ended_pushes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lagrange

#endif  // PS_ARRAY_ENGINE_TESTING_H_

// The thread-safe engine under contention, with exact sums. Links no gRPC, so that ThreadSanitizer can judge it.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ps/core/engine.h"
#include "ps/core/engine_testing.h"

namespace lagrange {
namespace {

constexpr int kWorkers = 8;
constexpr int kPushes = 10000;

// All pushes of a worker, each with a pull before it; lease `worker % kTestLeases`, batches of its own.
void Work(EngineDriver* ps, int worker, int shard_count, std::atomic<int>* failures) {
  PsEffects effects;
  const Floats gradient(3, -1.0f);
  const RequestToken token = static_cast<RequestToken>(worker);
  for (int step = 0; step < kPushes; ++step) {
    RequestHeader header = ps->PushHeader(worker + 1, step, (worker / kTestLeases) * kPushes + step);
    header.mutable_key()->set_lease(worker % kTestLeases);
    ps->engine().Pull(ps->Header(worker + 1, step), 2 * step, {}, token, &effects);
    if (!ps->engine().BeginPush(header, 2 * step + 1, token, &effects)) ++*failures;
    std::vector<ShardResult> results;
    for (int i = 0; i < shard_count; ++i) {
      // Workers start at different shards, as their streams do.
      const uint32_t shard = static_cast<uint32_t>((i + worker) % shard_count);
      auto result = ps->engine().ApplyPart(header, shard, 0, gradient);
      if (!result.ok() || result->outcome() != APPLIED) ++*failures;
      if (result.ok()) results.push_back(*std::move(result));
    }
    ps->engine().EndPush(header, 2 * step + 1, token, std::move(results), &effects);
    for (const PullAnswer& answer : effects.pulls) {
      for (const ShardView& view : answer.shards) {
        // A view is one version whole: every element has had the same number of pushes.
        const absl::Span<const float> values = view.parameters.values();
        if (values[0] != static_cast<float>(view.version) || values[0] != values[2]) ++*failures;
      }
    }
    if (effects.pushes.size() != 1 || effects.pushes[0].header.code() != OK) ++*failures;
    effects = PsEffects();
  }
}

// FAILURES B36, while a ninth thread cuts, reads forks and statistics.
TEST(ThreadSafeEngine, EightWorkersOfTenThousandPushesAddUpExactly) {
  EngineTestJob job;
  job.shard_count = 3;
  EngineDriver ps(NewThreadSafeEngine({}), job);
  ps.Install();
  for (int worker = 0; worker < kWorkers; ++worker) ASSERT_EQ(ps.Join(worker + 1), 0);
  std::atomic<int> failures{0};
  std::atomic<int> working{kWorkers};
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      Work(&ps, worker, job.shard_count, &failures);
      --working;
    });
  }
  for (uint64_t cut = 11; working > 0; ++cut) {
    ASSERT_TRUE(ps.AnnounceCut(cut).ok());
    const std::vector<ShardSnapshot> fork = ps.engine().GetFork(cut).value();
    for (const ShardSnapshot& snapshot : fork) {
      int64_t applied = 0;
      for (const LeaseBitmap& lease : snapshot.dedupe.open()) applied += lease.applied_batches_size();
      // Bits and values of a fork are of one instant.
      EXPECT_EQ(snapshot.version, applied);
      EXPECT_EQ(Values(snapshot.parameters), Floats(3, static_cast<float>(applied)));
    }
    PsCommand release = ps.Command();
    release.mutable_release_cut()->set_cut(cut);
    ASSERT_TRUE(ps.Execute(release).ok());
    EXPECT_LE(ps.engine().Staleness().pushes(), int64_t{3} * kWorkers * kPushes);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(ps.Now(), Floats(9, kWorkers * kPushes));
  for (const ShardSnapshot& snapshot : ps.engine().Snapshot()) EXPECT_EQ(snapshot.version, kWorkers * kPushes);
  EXPECT_EQ(ps.engine().LargestClock(), kPushes - 1);
}

// The same through rounds: each worker's next push waits for the close of its last one.
TEST(ThreadSafeEngine, RoundsOfManyThreadsCloseOnceEach) {
  constexpr int kRounds = 500;
  constexpr int kMembers = 4;
  EngineTestJob job;
  job.consistency = "bsp {}";
  EngineDriver ps(NewThreadSafeEngine({}), job);
  ps.Install();
  for (int worker = 0; worker < kMembers; ++worker) ps.Join(worker + 1);
  std::vector<std::atomic<int>> answered(kMembers);
  std::atomic<int> failures{0};
  const auto work = [&](int worker) {
    for (int round = 0; round < kRounds; ++round) {
      PsEffects effects;
      RequestHeader header = ps.PushHeader(worker + 1, round, round);
      header.mutable_key()->set_lease(worker);
      const RequestToken token = static_cast<RequestToken>(worker);
      if (!ps.engine().BeginPush(header, round, token, &effects)) ++failures;
      std::vector<ShardResult> results;
      for (uint32_t shard = 0; shard < 2; ++shard) {
        results.push_back(ps.engine().ApplyPart(header, shard, 0, Floats(3, -1.0f)).value());
      }
      ps.engine().EndPush(header, round, token, std::move(results), &effects);
      for (const PushAnswer& answer : effects.pushes) {
        if (answer.header.code() != OK || answer.header.results(0).outcome() != APPLIED) ++failures;
        ++answered[answer.token];
      }
      while (answered[worker] <= round) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kMembers; ++worker) threads.emplace_back(work, worker);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(ps.Now(), Floats(6, kRounds));
  EXPECT_EQ(ps.engine().Snapshot()[0].version, kRounds);
}

}  // namespace
}  // namespace lagrange

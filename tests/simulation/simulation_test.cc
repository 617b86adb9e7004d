// Thousands of seeded runs of a whole cluster, judged by tests/simulation/checkers.h.
//
//   bazel test //tests/simulation:simulation_test                    1,000 seeds
//   bazel run //tests/simulation:simulation_test -- --seed=17                 one seed, under every policy
//   bazel run //tests/simulation:simulation_test -- --seed=17 --trace=bsp     with all that happens under one

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simulation/cluster.h"

namespace lagrange::simulation {
namespace {

int64_t seed_count = 1000;
int64_t first_seed = 0;

// Every policy, the bounded one at its edges.
const char* const kPolicies[] = {"asp", "ssp:0", "ssp:1", "ssp:3", "bsp"};
// A kind of fault that comes up less often than this proves little.
constexpr double kLeastShareOfSeeds = 0.05;

ClusterOptions OptionsFor(uint64_t seed, const std::string& policy) {
  ClusterOptions options;
  options.seed = seed;
  options.consistency = policy;
  return options;
}

// What it found, and how often each fault struck, in how many of the seeds.
void Sweep(const std::vector<std::string>& policies) {
  std::vector<int64_t> struck(kFaultCount, 0), seeds_with(kFaultCount, 0);
  int64_t events = 0;
  int64_t runs = 0;
  for (int64_t seed = first_seed; seed < first_seed + seed_count; ++seed) {
    const std::string& policy = policies[seed % policies.size()];
    const RunResult result = Cluster(OptionsFor(seed, policy)).Run();
    ASSERT_TRUE(result.status.ok()) << "seed " << seed << " under " << policy << ": " << result.status
                                    << "\nreplay: bazel run //tests/simulation:simulation_test -- --seed=" << seed;
    for (int kind = 0; kind < kFaultCount; ++kind) {
      struck[kind] += result.faults[kind];
      seeds_with[kind] += result.faults[kind] > 0 ? 1 : 0;
    }
    events += result.events;
    ++runs;
  }
  std::printf("%lld runs, %lld events\n", static_cast<long long>(runs), static_cast<long long>(events));
  for (int kind = 0; kind < kFaultCount; ++kind) {
    const double share = static_cast<double>(seeds_with[kind]) / static_cast<double>(runs);
    std::printf("  %-13s %8lld times, in %5.1f%% of the seeds\n", kFaultNames[kind],
                static_cast<long long>(struck[kind]), 100 * share);
    // A handful of seeds says nothing about shares.
    if (runs >= 100) {
      EXPECT_GE(share, kLeastShareOfSeeds) << kFaultNames[kind];
    }
  }
}

TEST(Simulation, InvariantsHoldUnderEveryFault) {
  Sweep(std::vector<std::string>(std::begin(kPolicies), std::end(kPolicies)));
}

TEST(Simulation, PassesWithoutFaults) {
  for (const char* policy : kPolicies) {
    ClusterOptions options = OptionsFor(1, policy);
    options.faults = false;
    const RunResult result = Cluster(options).Run();
    EXPECT_TRUE(result.status.ok()) << policy << ": " << result.status;
  }
}

TEST(Simulation, EqualSeedsGiveEqualRuns) {
  for (const char* policy : kPolicies) {
    const RunResult first = Cluster(OptionsFor(5, policy)).Run();
    const RunResult again = Cluster(OptionsFor(5, policy)).Run();
    EXPECT_EQ(first.events, again.events);
    EXPECT_EQ(first.duration, again.duration);
    EXPECT_EQ(first.faults, again.faults);
  }
}

TEST(Simulation, WorkersDoRunApartUnderSsp) {
  int64_t largest = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    largest = std::max(largest, Cluster(OptionsFor(seed, "ssp:3")).Run().largest_staleness_clocks);
  }
  EXPECT_GT(largest, 1);
  EXPECT_LE(largest, 3);
}

// A checker that can't fail proves nothing: each planted bug must be seen, as what it is.
void ExpectSeen(Planted planted, const std::string& policy, const std::string& message) {
  int64_t seen = 0;
  std::string last = "no violation in any seed";
  for (uint64_t seed = 0; seed < 60; ++seed) {
    ClusterOptions options = OptionsFor(seed, policy);
    options.planted = planted;
    const RunResult result = Cluster(options).Run();
    if (result.status.ok()) continue;
    last = std::string(result.status.message());
    if (absl::StrContains(last, message)) ++seen;
  }
  EXPECT_GT(seen, 0) << last;
}

TEST(PlantedBug, AForgottenKeyIsSeenAsAppliedTwice) { ExpectSeen(Planted::kNoDedupe, "asp", "was applied twice"); }

TEST(PlantedBug, ADroppedPartIsSeenWhenTheStepIsReported) { ExpectSeen(Planted::kLostPart, "asp", "lacks it"); }

TEST(PlantedBug, AnUnboundedPullIsSeen) { ExpectSeen(Planted::kNoBound, "ssp:1", "invariant 3"); }

TEST(PlantedBug, AMissedEvictionIsSeenAsEndlessWaiting) { ExpectSeen(Planted::kNoEviction, "ssp:1", "invariant 5"); }

void Replay(uint64_t seed, const std::string& traced) {
  for (const char* policy : kPolicies) {
    if (!traced.empty() && traced != policy) continue;
    ClusterOptions options = OptionsFor(seed, policy);
    options.trace = !traced.empty();
    const RunResult result = Cluster(options).Run();
    std::cout << "seed " << seed << " under " << policy << ": " << result.status << ", " << result.events << " events, "
              << result.duration << "\n";
  }
}

TEST(PlantedBug, ACheckpointOfTheLiveStateIsSeenInItsCut) {
  ExpectSeen(Planted::kLiveFork, "asp", "of an epoch after the cut's");
}

bool ParseFlag(absl::string_view argument, absl::string_view flag, int64_t* value) {
  return absl::ConsumePrefix(&argument, flag) && absl::SimpleAtoi(argument, value);
}

}  // namespace
}  // namespace lagrange::simulation

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int64_t replayed = -1;
  std::string traced;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    if (absl::ConsumePrefix(&argument, "--trace=")) {
      traced = std::string(argument);
    } else if (!lagrange::simulation::ParseFlag(argv[i], "--seed=", &replayed) &&
               !lagrange::simulation::ParseFlag(argv[i], "--seeds=", &lagrange::simulation::seed_count) &&
               !lagrange::simulation::ParseFlag(argv[i], "--first_seed=", &lagrange::simulation::first_seed)) {
      std::cerr << "unknown argument " << argv[i] << "\n";
      return 2;
    }
  }
  if (replayed >= 0) {
    lagrange::simulation::Replay(replayed, traced);
    return 0;
  }
  return RUN_ALL_TESTS();
}

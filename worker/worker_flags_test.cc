#include "worker/worker_flags.h"

#include <vector>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

std::variant<WorkerFlags, int> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "lagrange-worker");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseWorkerFlags(static_cast<int>(argv.size()), argv.data());
}

TEST(WorkerFlags, ChiefAloneIsEnough) {
  const WorkerFlags flags = std::get<WorkerFlags>(Parse({"--chief=[::1]:7470"}));
  EXPECT_EQ(flags.chief, "[::1]:7470");
  EXPECT_FALSE(flags.task_index.has_value());
  EXPECT_FALSE(flags.expected_ps_count.has_value());
  EXPECT_EQ(flags.compute_threads, 1);
  EXPECT_EQ(flags.startup_timeout, absl::Minutes(5));
  EXPECT_EQ(flags.step_delay, absl::ZeroDuration());
}

TEST(WorkerFlags, AllAreTaken) {
  const WorkerFlags flags = std::get<WorkerFlags>(
      Parse({"--chief=c:1", "--task_index=3", "--ps_count=2", "--worker_count=4", "--startup_timeout=90s",
             "--compute_threads=2", "--step_delay=40ms", "--log_level=debug", "--listen=127.0.0.1:0"}));
  EXPECT_EQ(flags.task_index, 3);
  EXPECT_EQ(flags.expected_ps_count, 2);
  EXPECT_EQ(flags.expected_worker_count, 4);
  EXPECT_EQ(flags.startup_timeout, absl::Seconds(90));
  EXPECT_EQ(flags.compute_threads, 2);
  EXPECT_EQ(flags.step_delay, absl::Milliseconds(40));
  EXPECT_EQ(flags.log_level, LogLevel::kDebug);
}

TEST(WorkerFlags, HelpAndVersionEndWell) {
  EXPECT_EQ(std::get<int>(Parse({"--help"})), 0);
  EXPECT_EQ(std::get<int>(Parse({"--version"})), 0);
}

class BadWorkerFlags : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(BadWorkerFlags, EndWithTwo) { EXPECT_EQ(std::get<int>(Parse(GetParam())), 2); }

using Flags = std::vector<std::string>;
INSTANTIATE_TEST_SUITE_P(
    Each, BadWorkerFlags,
    testing::Values(Flags{}, Flags{"--chief=nowhere"}, Flags{"--chief=c:0"}, Flags{"--chief=c:1", "--task_index=-1"},
                    Flags{"--chief=c:1", "--worker_count=0"}, Flags{"--chief=c:1", "--startup_timeout=0s"},
                    Flags{"--chief=c:1", "--step_delay=-1s"}, Flags{"--chief=c:1", "--log_level=loud"},
                    Flags{"--chief=c:1", "--cheif=c:1"}));

}  // namespace
}  // namespace lagrange

#include "common/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <memory>
#include <utility>

#include "common/status_matchers.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

class StopSignalsOf : public testing::TestWithParam<int> {};

TEST_P(StopSignalsOf, ReachTheCallback) {
  BlockStopSignals();
  std::promise<int> got;
  auto signals = StopSignals::Watch([&got](int signal) { got.set_value(signal); });
  ASSERT_THAT(signals, IsOk());
  kill(getpid(), GetParam());
  EXPECT_EQ(got.get_future().get(), GetParam());
}

TEST_P(StopSignalsOf, BeforeTheWatchAreKept) {
  BlockStopSignals();
  kill(getpid(), GetParam());
  std::promise<int> got;
  auto signals = StopSignals::Watch([&got](int signal) { got.set_value(signal); });
  ASSERT_THAT(signals, IsOk());
  EXPECT_EQ(got.get_future().get(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Both, StopSignalsOf, testing::Values(SIGTERM, SIGINT));

TEST(StopSignals, EndWithoutASignal) {
  BlockStopSignals();
  const auto signals = StopSignals::Watch([](int) {});
  EXPECT_THAT(signals, IsOk());
}

TEST(StopSignals, RestoredInAChildEndIt) {
  BlockStopSignals();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    RestoreStopSignals();
    raise(SIGTERM);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

}  // namespace
}  // namespace lagrange

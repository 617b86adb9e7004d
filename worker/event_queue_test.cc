#include "worker/event_queue.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

TEST(EventQueue, KeepsTheOrder) {
  EventQueue queue;
  std::vector<int> seen;
  for (int i = 0; i < 3; ++i) queue.Post([&seen, i] { seen.push_back(i); });
  for (int i = 0; i < 3; ++i) queue.Take(absl::ZeroDuration())();
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2}));
}

TEST(EventQueue, EmptyQueueTimesOut) {
  EventQueue queue;
  EXPECT_FALSE(queue.Take(absl::ZeroDuration()));
}

TEST(EventQueue, WaitEndsWithAnEventOfAnotherThread) {
  EventQueue queue;
  std::thread other([&queue] { queue.Post([] {}); });
  EXPECT_TRUE(queue.Take(absl::InfiniteDuration()));
  other.join();
}

TEST(EventQueue, FullQueueDropsAllButWhatMustNotBe) {
  EventQueue queue;
  for (size_t i = 0; i < EventQueue::kMaxEvents; ++i) ASSERT_TRUE(queue.Post([] {}));
  EXPECT_FALSE(queue.Post([] {}));
  bool ran = false;
  queue.PostAlways([&ran] { ran = true; });
  while (const EventQueue::Event event = queue.Take(absl::ZeroDuration())) event();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace lagrange

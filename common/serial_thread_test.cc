#include "common/serial_thread.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// What a thread did that was told to end while its first work ran and two more waited.
std::vector<int> DoneWhenEndedEarly(SerialThread::AtEnd at_end) {
  std::vector<int> done;
  {
    SerialThread thread(at_end);
    absl::Notification begun;
    thread.Do([&] {
      begun.Notify();
      // Ends when the destructor asks; a day would be this test's timeout.
      thread.Pause(absl::Hours(24));
      done.push_back(1);
    });
    thread.Do([&] { done.push_back(2); });
    thread.Do([&] { done.push_back(3); });
    begun.WaitForNotification();
  }
  return done;
}

TEST(SerialThread, FinishesInOrderBeforeItEnds) {
  EXPECT_THAT(DoneWhenEndedEarly(SerialThread::AtEnd::kFinish), ElementsAre(1, 2, 3));
}

TEST(SerialThread, DropsWhatHasNotBegun) {
  EXPECT_THAT(DoneWhenEndedEarly(SerialThread::AtEnd::kDrop), ElementsAre(1));
}

TEST(SerialThread, EndsWithoutWork) {
  std::vector<int> done;
  { SerialThread thread(SerialThread::AtEnd::kFinish); }
  EXPECT_THAT(done, IsEmpty());
}

}  // namespace
}  // namespace lagrange

#include "worker/core/chief_calls.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();

TEST(ChiefCalls, RepeatCarriesTheTermKnownByThen) {
  ChiefCalls calls(absl::Seconds(5));
  calls.Begin(CallLeave{});
  WorkerEffects effects;
  calls.SendDue(3, kNow, &effects);
  calls.SendDue(4, kNow + absl::Seconds(5), &effects);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<CallLeave>(effects[0]).request.term(), 3u);
  EXPECT_EQ(std::get<CallLeave>(effects[1]).request.term(), 4u);
  EXPECT_EQ(std::get<CallLeave>(effects[0]).call_id, std::get<CallLeave>(effects[1]).call_id);
}

TEST(ChiefCalls, NothingGoesOutBeforeItsTime) {
  ChiefCalls calls(absl::Seconds(5));
  calls.Begin(CallRegister{}, kNow + absl::Seconds(1));
  WorkerEffects effects;
  calls.SendDue(0, kNow, &effects);
  EXPECT_TRUE(effects.empty());
  EXPECT_EQ(calls.next_due(), kNow + absl::Seconds(1));
}

TEST(ChiefCalls, SilenceCountsAsFailing) {
  ChiefCalls calls(absl::Seconds(5));
  calls.Begin(CallAcquireWork{});
  WorkerEffects effects;
  calls.SendDue(1, kNow, &effects);
  EXPECT_EQ(calls.failing_since(), absl::InfiniteFuture());
  calls.SendDue(1, kNow + absl::Seconds(5), &effects);
  EXPECT_EQ(calls.failing_since(), kNow + absl::Seconds(5));
}

TEST(ChiefCalls, SilentRegistrationIsNoFailure) {
  ChiefCalls calls(absl::Seconds(5));
  calls.Begin(CallRegister{});
  WorkerEffects effects;
  calls.SendDue(1, kNow, &effects);
  calls.SendDue(1, kNow + absl::Seconds(5), &effects);
  EXPECT_EQ(effects.size(), 2u);
  EXPECT_EQ(calls.failing_since(), absl::InfiniteFuture());
}

TEST(ChiefCalls, FirstFailureCountsUntilAnAnswer) {
  ChiefCalls calls(absl::Seconds(5));
  calls.NoteFailure(9, absl::UnavailableError("a"), kNow);
  calls.NoteFailure(9, absl::UnavailableError("b"), kNow + absl::Seconds(1));
  EXPECT_EQ(calls.failing_since(), kNow);
  EXPECT_EQ(calls.last_failure().message(), "b");
  calls.NoteAnswer();
  EXPECT_EQ(calls.failing_since(), absl::InfiniteFuture());
}

TEST(ChiefCalls, EndedCallIsUnknown) {
  ChiefCalls calls(absl::Seconds(5));
  const uint64_t id = calls.Begin(CallLeave{});
  EXPECT_NE(calls.Find<CallLeave>(id), nullptr);
  EXPECT_EQ(calls.Find<CallRegister>(id), nullptr);
  calls.End(id);
  EXPECT_EQ(calls.Find<CallLeave>(id), nullptr);
  EXPECT_FALSE(calls.IsOutstanding<CallLeave>());
}

}  // namespace
}  // namespace lagrange

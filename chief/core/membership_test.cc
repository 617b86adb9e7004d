#include "chief/core/membership.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MembershipTest : public ::testing::Test {
 protected:
  static Membership::Options Options() {
    Membership::Options options;
    options.ps_count = 1;
    options.worker_count = 2;
    options.heartbeat_interval = absl::Seconds(1);
    options.ps_lease = absl::Seconds(5);
    options.worker_lease = absl::Seconds(10);
    return options;
  }
  static RegisterRequest Worker(uint64_t process_id) {
    RegisterRequest request;
    request.set_role(WORKER);
    request.set_process_id(process_id);
    return request;
  }

  const absl::Time start = absl::UnixEpoch();
  Membership membership{Options(), {}, start};
};

TEST_F(MembershipTest, LapsesAreByRole) {
  RegisterRequest ps = Worker(1);
  ps.set_role(PS);
  membership.Admit(ps, 0, 1, start);
  membership.Admit(Worker(2), 0, 2, start);
  EXPECT_EQ(membership.next_lapse(), start + absl::Seconds(5));
  EXPECT_THAT(membership.Lapsed(start + absl::Seconds(5)), ElementsAre(1));
  membership.Heard(1, start + absl::Seconds(6));
  EXPECT_THAT(membership.Lapsed(start + absl::Seconds(10)), ElementsAre(2));
}

TEST_F(MembershipTest, TheRecordsMembersGetAFullLease) {
  std::map<uint64_t, MemberRecord> records;
  records[4].incarnation = 4;
  records[4].role = WORKER;
  records[5] = records[4];
  records[5].state = MemberState::kEvicted;
  const absl::Time later = start + absl::Hours(3);
  const Membership restarted(Options(), records, later);
  EXPECT_EQ(restarted.live().size(), 1);
  EXPECT_EQ(restarted.next_lapse(), later + absl::Seconds(10));
}

TEST_F(MembershipTest, AHolderIsJudgedByItsSilence) {
  membership.Admit(Worker(1), 0, 1, start);
  membership.Admit(Worker(2), 1, 2, start);
  RegisterRequest third = Worker(3);
  third.set_task_index(1);
  EXPECT_EQ(membership.FindSeat(third, start).kind, Membership::Seat::kAskAgain);
  EXPECT_EQ(membership.FindSeat(third, start + absl::Seconds(2)).kind, Membership::Seat::kAskAgain);
  const Membership::Seat taken = membership.FindSeat(third, start + absl::Milliseconds(2001));
  EXPECT_EQ(taken.kind, Membership::Seat::kTakeOver);
  EXPECT_EQ(taken.holder, 2);
  membership.Heard(2, start + absl::Milliseconds(501));
  const Membership::Seat refused = membership.FindSeat(third, start + absl::Seconds(2));
  EXPECT_EQ(refused.kind, Membership::Seat::kRefused);
  EXPECT_THAT(refused.message, HasSubstr("worker 1 (incarnation 2"));
}

TEST_F(MembershipTest, AMessageThatWasUnderWayIsNoSignOfLife) {
  membership.Admit(Worker(1), 1, 1, start);
  RegisterRequest second = Worker(2);
  second.set_task_index(1);
  membership.FindSeat(second, start);
  membership.Heard(1, start + absl::Milliseconds(400));
  EXPECT_EQ(membership.FindSeat(second, start + absl::Seconds(1)).kind, Membership::Seat::kAskAgain);
}

TEST_F(MembershipTest, AProcessWithoutAnIndexMayTakeASilentOnes) {
  membership.Admit(Worker(1), 0, 1, start);
  membership.Admit(Worker(2), 1, 2, start);
  membership.Heard(1, start + absl::Seconds(3));
  const Membership::Seat seat = membership.FindSeat(Worker(3), start + absl::Seconds(3));
  EXPECT_EQ(seat.kind, Membership::Seat::kTakeOver);
  EXPECT_EQ(seat.task_index, 1);
}

TEST_F(MembershipTest, WhoIsKnownFromRecordsAloneIsMissingUntilHeard) {
  MemberRecord ps;
  ps.incarnation = 3;
  ps.role = PS;
  Membership restarted(Options(), {{3, ps}}, start);
  EXPECT_EQ(restarted.LiveCount(PS), 1);
  EXPECT_EQ(restarted.Missing(), "ps: 0 of 1 registered; workers: 0 of 2 registered");
  restarted.RenewAll(start);
  EXPECT_EQ(restarted.Missing(), "ps: 0 of 1 registered; workers: 0 of 2 registered");
  restarted.Heard(3, start);
  EXPECT_EQ(restarted.Missing(), "workers: 0 of 2 registered");
}

TEST_F(MembershipTest, SaysWhoIsMissing) {
  EXPECT_EQ(membership.Missing(), "ps: 0 of 1 registered; workers: 0 of 2 registered");
  RegisterRequest ps = Worker(1);
  ps.set_role(PS);
  membership.Admit(ps, 0, 1, start);
  EXPECT_EQ(membership.Missing(), "workers: 0 of 2 registered");
  membership.Admit(Worker(2), 0, 2, start);
  membership.Admit(Worker(3), 1, 3, start);
  EXPECT_EQ(membership.Missing(), "");
}

TEST_F(MembershipTest, AWorkerThatIsGoneFreesItsIndex) {
  membership.Admit(Worker(1), 0, 1, start);
  EXPECT_EQ(membership.Remove(1, MemberState::kLeft).state, MemberState::kLeft);
  EXPECT_EQ(membership.Find(1), nullptr);
  EXPECT_EQ(membership.FindSeat(Worker(2), start).task_index, 0);
}

}  // namespace
}  // namespace lagrange

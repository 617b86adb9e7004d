#include "chief/core/ps_commands.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

class PsCommandsTest : public ::testing::Test {
 protected:
  static PsCommands::Options Options() {
    PsCommands::Options options;
    options.term = 3;
    options.generation = 2;
    options.command_timeout = absl::Seconds(2);
    options.disk_command_timeout = absl::Minutes(10);
    return options;
  }
  uint64_t SendRelease() {
    PsAddress ps;
    ps.set_ps_index(1);
    ps.set_address("b:1");
    ps.set_incarnation(8);
    PsCommand command;
    command.mutable_release_cut();
    commands.Send(ps, command, now, &effects);
    return effects.ps_commands.back().command_id;
  }
  uint64_t SendWrite() {
    PsCommand command;
    command.mutable_write_checkpoint();
    commands.Send(PsAddress(), command, now, &effects);
    return effects.ps_commands.back().command_id;
  }

  absl::Time now = absl::UnixEpoch();
  PsCommands commands{Options()};
  ChiefEffects effects;
};

TEST_F(PsCommandsTest, StampsTermGenerationAndIncarnation) {
  SendRelease();
  const OutgoingPsCommand& sent = effects.ps_commands[0];
  EXPECT_EQ(sent.command.term(), 3);
  EXPECT_EQ(sent.command.generation(), 2);
  EXPECT_EQ(sent.command.incarnation(), 8);
  EXPECT_EQ(sent.address, "b:1");
  EXPECT_EQ(sent.deadline, absl::Seconds(2));
}

TEST_F(PsCommandsTest, SendsAgainUnderTheSameIdUntilTaken) {
  const uint64_t id = SendRelease();
  commands.Resend(now + absl::Seconds(1), &effects);
  EXPECT_EQ(effects.ps_commands.size(), 1);
  commands.Resend(commands.next_resend(), &effects);
  ASSERT_EQ(effects.ps_commands.size(), 2);
  EXPECT_EQ(effects.ps_commands[1].command_id, id);
  commands.Take(id);
  EXPECT_EQ(commands.next_resend(), absl::InfiniteFuture());
}

TEST_F(PsCommandsTest, AFailureThatMayPassIsTriedAgainSoon) {
  const uint64_t id = SendWrite();
  EXPECT_GT(commands.next_resend(), now + absl::Minutes(10));
  commands.RetryLater(id, now);
  EXPECT_EQ(commands.next_resend(), now + absl::Milliseconds(500));
}

TEST_F(PsCommandsTest, ARefusedDiskCommandIsTriedAFewTimesOnly) {
  const uint64_t write = SendWrite();
  const uint64_t release = SendRelease();
  const absl::Status refused = absl::FailedPreconditionError("another format");
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(commands.MayPass(write, refused));
    commands.RetryLater(write, now);
    commands.RetryLater(release, now);
  }
  EXPECT_FALSE(commands.MayPass(write, refused));
  EXPECT_TRUE(commands.MayPass(write, absl::UnavailableError("")));
  EXPECT_TRUE(commands.MayPass(release, refused));
}

TEST_F(PsCommandsTest, WhatIsWrongOrBrokenDoesNotPass) {
  const uint64_t id = SendWrite();
  EXPECT_FALSE(commands.MayPass(id, absl::DataLossError("")));
  EXPECT_FALSE(commands.MayPass(id, absl::InvalidArgumentError("")));
  EXPECT_FALSE(commands.MayPass(id, absl::ResourceExhaustedError("")));
}

}  // namespace
}  // namespace lagrange

#include "common/logging.h"

#include <string>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

class Logging : public testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kInfo);
    SetLogIdentity("worker", 1);
    testing::internal::CaptureStderr();
  }
  void TearDown() override {
    if (!taken_) testing::internal::GetCapturedStderr();
  }
  std::string Stderr() {
    taken_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  bool taken_ = false;
};

TEST_F(Logging, LineHasTimeLevelRoleAndIndex) {
  LogInfo("epoch ", 3, ": ", 0.5);
  EXPECT_THAT(Stderr(), MatchesRegex("[0-9-]+ [0-9]+:[0-9]+:[0-9]+[.][0-9]+ I \\[worker 1\\] epoch 3: 0.5\n"));
}

TEST_F(Logging, RoleStandsAloneBeforeTheIndexIsKnown) {
  SetLogIdentity("ps");
  LogError("x");
  EXPECT_THAT(Stderr(), HasSubstr(" E [ps] x\n"));
}

TEST_F(Logging, PercentInTheIdentityIsPlain) {
  SetLogIdentity("50%v");
  LogInfo("x");
  EXPECT_THAT(Stderr(), HasSubstr("[50%v] x"));
}

TEST_F(Logging, LowerLevelsAreDropped) {
  SetLogLevel(LogLevel::kWarning);
  LogInfo("a");
  LogDebug("b");
  EXPECT_THAT(Stderr(), IsEmpty());
}

TEST_F(Logging, MessageCantForgeALine) {
  LogWarning("a\nb\x1b[31m{}%v");
  EXPECT_THAT(Stderr(), HasSubstr("W [worker 1] a\\x0ab\\x1b[31m{}%v\n"));
}

TEST_F(Logging, LongMessageIsCut) {
  LogInfo(std::string(100000, 'x'));
  EXPECT_THAT(Stderr(), AllOf(HasSubstr("xxx... (100000 bytes)\n"), Not(HasSubstr(std::string(8193, 'x')))));
}

TEST(LogLevel, IsParsed) { EXPECT_THAT(ParseLogLevel("warning"), IsOkAndHolds(LogLevel::kWarning)); }

TEST(LogLevel, UnknownNameListsTheKnown) {
  EXPECT_THAT(ParseLogLevel("loud"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("debug, info, warning or error, got \"loud\"")));
}

}  // namespace
}  // namespace lagrange

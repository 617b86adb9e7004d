#include "cli/child_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

// Bounds a wait on a child that has been told to end; only a failing test takes so long.
constexpr int kMaxPolls = 600;

class ChildProcessesTest : public ::testing::Test {
 protected:
  std::map<std::string, int> PollUntilAllEnded() {
    std::map<std::string, int> ended;
    for (int i = 0; i < kMaxPolls && children_.AnyAlive(""); ++i) {
      for (const auto& child : children_.Poll(absl::Milliseconds(100), -1)) ended[child.name] = child.wait_status;
    }
    return ended;
  }

  std::vector<std::string> lines_;
  ChildProcesses children_{[this](const std::string& name, OutputStream stream, const std::string& line) {
    lines_.push_back(name + (stream == OutputStream::kStdout ? " out " : " err ") + line);
  }};
};

TEST_F(ChildProcessesTest, PassesWholeLinesOfBothStreamsOn) {
  ASSERT_TRUE(children_.Start("a", {"/bin/sh", "-c", "printf 'one\\ntwo'; printf 'three\\n' >&2"}).ok());
  PollUntilAllEnded();
  std::sort(lines_.begin(), lines_.end());
  EXPECT_EQ(lines_, (std::vector<std::string>{"a err three", "a out one", "a out two"}));
}

TEST_F(ChildProcessesTest, TellsHowEachEnded) {
  ASSERT_TRUE(children_.Start("three", {"/bin/sh", "-c", "exit 3"}).ok());
  ASSERT_TRUE(children_.Start("killed", {"/bin/sh", "-c", "kill -9 $$"}).ok());
  const std::map<std::string, int> ended = PollUntilAllEnded();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_EQ(DescribeWaitStatus(ended.at("three")), "exit status 3");
  EXPECT_EQ(DescribeWaitStatus(ended.at("killed")), "killed by signal 9 (Killed)");
}

TEST_F(ChildProcessesTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status status = children_.Start("ps 0", {"/nowhere/lagrange-ps"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "can't run /nowhere/lagrange-ps as ps 0: No such file or directory");
  EXPECT_FALSE(children_.AnyAlive(""));
}

TEST_F(ChildProcessesTest, ASignalReachesOnlyThoseOfThePrefix) {
  ASSERT_TRUE(children_.Start("worker 0", {"/bin/sleep", "1000"}).ok());
  ASSERT_TRUE(children_.Start("ps 0", {"/bin/sleep", "1000"}).ok());
  children_.Signal("worker", SIGTERM);
  for (int i = 0; i < kMaxPolls && children_.AnyAlive("worker"); ++i) children_.Poll(absl::Milliseconds(100), -1);
  EXPECT_FALSE(children_.AnyAlive("worker"));
  EXPECT_TRUE(children_.AnyAlive("ps"));
}

TEST_F(ChildProcessesTest, NoLineIsHeldBeyondItsBound) {
  ASSERT_TRUE(children_.Start("a", {"/bin/sh", "-c", "head -c 200000 /dev/zero | tr '\\0' x"}).ok());
  PollUntilAllEnded();
  ASSERT_EQ(lines_.size(), 4u);
  for (const std::string& line : lines_) EXPECT_LE(line.size(), (64u << 10) + 6);
}

// The parent is killed with SIGKILL: its child must go too, though nothing is left to end it.
TEST(ChildProcesses, NoneOutlivesAParentKilledWithSigkill) {
  int said[2];
  // Closed on exec: the grandchild must not keep the pipe open.
  ASSERT_EQ(::pipe2(said, O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ChildProcesses children([&](const std::string&, OutputStream, const std::string& line) {
      [[maybe_unused]] const ssize_t count = ::write(said[1], line.data(), line.size());
      ::close(said[1]);
    });
    if (!children.Start("a", {"/bin/sh", "-c", "echo $$; exec sleep 1000"}).ok()) ::_exit(1);
    while (true) children.Poll(absl::Seconds(1), -1);
  }
  ::close(said[1]);
  std::string text;
  char buffer[32];
  for (ssize_t count; (count = ::read(said[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, count);
  ::close(said[0]);
  int child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(text, &child)) << text;
  ASSERT_EQ(::kill(child, 0), 0);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < kMaxPolls && !gone; ++i) {
    // An orphan that nobody has reaped yet still answers kill(0): its state in /proc tells.
    const std::string command = "grep -q '^State:.[^ZX]' /proc/" + std::to_string(child) + "/status 2>/dev/null";
    gone = std::system(command.c_str()) != 0;
    if (!gone) ::usleep(10'000);
  }
  EXPECT_TRUE(gone) << "process " << child << " is still there";
}

}  // namespace
}  // namespace lagrange

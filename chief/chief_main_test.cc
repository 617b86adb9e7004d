// The daemon as a process: what it says and how it exits. Its argument is the binary.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace lagrange {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

const char* chief_binary = nullptr;

// A chief whose stdout and stderr are one pipe; killed at the end if it still runs.
class Chief {
 public:
  explicit Chief(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), chief_binary);
    int ends[2];
    if (pipe(ends) != 0) abort();
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  ~Chief() {
    if (child_ > 0) kill(child_, SIGKILL);
    if (child_ > 0) waitpid(child_, nullptr, 0);
    close(output_);
  }

  // Reads until the text has come or the output ends; returns all so far.
  const std::string& ReadUntil(const std::string& text) {
    char block[4096];
    ssize_t got = 0;
    while (read_.find(text) == std::string::npos && (got = read(output_, block, sizeof(block))) > 0) {
      read_.append(block, static_cast<size_t>(got));
    }
    return read_;
  }
  const std::string& ReadAll() { return ReadUntil(std::string("\0no output has this", 19)); }

  void Signal(int number) { kill(child_, number); }

  int Wait() {
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t child_ = 0;
  int output_ = -1;
  std::string read_;
};

class ChiefMain : public testing::Test {
 protected:
  ChiefMain() {
    std::string pattern = (fs::temp_directory_path() / "chief_main_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    WriteJob("job.textproto", 64);
  }
  ~ChiefMain() override { fs::remove_all(directory_); }

  void WriteJob(const std::string& name, int batch_size) {
    std::ofstream(directory_ + "/" + name) << "name: \"example\" epochs: 1 batch_size: " << batch_size << R"(
        model { input_shape: [4] class_count: 2 layers { dense { units: 2 } } }
        data { train { idx { images_path: "/i" labels_path: "/l" } } }
        optimizer { sgd { learning_rate: 0.1 } })";
  }

  std::vector<std::string> Arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"--job=" + directory_ + "/job.textproto", "--listen=127.0.0.1:0",
                                          "--state_dir=" + directory_ + "/state"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static std::string AddressIn(const std::string& output) {
    const std::string mark = "--chief=";
    const size_t begin = output.find(mark) + mark.size();
    return output.substr(begin, output.find('\n', begin) - begin);
  }

  std::string directory_;
};

TEST_F(ChiefMain, VersionSaysBuildAndProtocol) {
  Chief chief({"--version"});
  EXPECT_THAT(chief.ReadAll(), AllOf(HasSubstr("lagrange-chief"), HasSubstr("protocol")));
  EXPECT_EQ(chief.Wait(), 0);
}

TEST_F(ChiefMain, MisspeltFlagIsNamed) {
  Chief chief(Arguments({"--lisen=127.0.0.1:1"}));
  EXPECT_THAT(chief.ReadAll(), HasSubstr("--lisen"));
  EXPECT_EQ(chief.Wait(), 2);
}

TEST_F(ChiefMain, MissingJobFileIsNamed) {
  Chief chief({"--job=" + directory_ + "/absent.textproto"});
  EXPECT_THAT(chief.ReadAll(), HasSubstr(directory_ + "/absent.textproto"));
  EXPECT_EQ(chief.Wait(), 2);
}

TEST_F(ChiefMain, BadJobFileIsNamedWithItsLine) {
  std::ofstream(directory_ + "/job.textproto") << "name: \"example\"\nepoks: 3\n";
  Chief chief(Arguments());
  EXPECT_THAT(chief.ReadAll(), AllOf(HasSubstr("job.textproto:2"), HasSubstr("epoks"), HasSubstr("epochs")));
  EXPECT_EQ(chief.Wait(), 2);
  EXPECT_FALSE(fs::exists(directory_ + "/state"));
}

TEST_F(ChiefMain, PortInUseIsNamedAndNothingIsLeft) {
  Chief first(Arguments());
  // The log's line comes in one write.
  const std::string bound = AddressIn(first.ReadUntil("members start with"));
  Chief second({"--job=" + directory_ + "/job.textproto", "--listen=" + bound, "--state_dir=" + directory_ + "/other"});
  EXPECT_THAT(second.ReadAll(), HasSubstr(bound));
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_FALSE(fs::exists(directory_ + "/other"));
}

TEST_F(ChiefMain, StateInUseByALiveChiefIsNamed) {
  Chief first(Arguments());
  first.ReadUntil("members start with");
  Chief second(Arguments());
  EXPECT_THAT(second.ReadAll(), AllOf(HasSubstr(directory_ + "/state"), HasSubstr("another chief")));
  EXPECT_EQ(second.Wait(), 2);
}

TEST_F(ChiefMain, StateOfAnotherJobIsNamed) {
  Chief first(Arguments());
  first.ReadUntil("members start with");
  first.Signal(SIGKILL);
  first.Wait();
  WriteJob("job.textproto", 32);
  Chief second(Arguments());
  EXPECT_THAT(second.ReadAll(), AllOf(HasSubstr(directory_ + "/state"), HasSubstr("another job")));
  EXPECT_EQ(second.Wait(), 2);
}

TEST_F(ChiefMain, RestoreWithoutManifestIsNamed) {
  fs::create_directory(directory_ + "/empty");
  Chief chief(Arguments({"--restore=" + directory_ + "/empty"}));
  EXPECT_THAT(chief.ReadAll(), AllOf(HasSubstr(directory_ + "/empty"), HasSubstr("manifest.json")));
  EXPECT_EQ(chief.Wait(), 2);
}

TEST_F(ChiefMain, TermStopsItAndTheNextOneGoesOn) {
  Chief first(Arguments());
  first.ReadUntil("members start with");
  first.Signal(SIGTERM);
  EXPECT_THAT(first.ReadAll(), HasSubstr("the state is kept"));
  EXPECT_EQ(first.Wait(), 128 + SIGTERM);
  Chief second(Arguments());
  EXPECT_THAT(second.ReadUntil("members start with"), HasSubstr("members start with"));
}

TEST_F(ChiefMain, WhoIsMissingIsSaidAndWaitedForNoLongerThanTold) {
  Chief chief(Arguments({"--startup_timeout=100ms", "--report=" + directory_ + "/report.json"}));
  EXPECT_THAT(chief.ReadAll(), HasSubstr("waiting for ps: 0 of 1 registered"));
  EXPECT_EQ(chief.Wait(), 1);
  EXPECT_TRUE(fs::exists(directory_ + "/report.json"));
}

TEST_F(ChiefMain, AddressFileHasTheAddressForOthers) {
  Chief chief(Arguments({"--advertise_address=chief.example:7470", "--address_file=" + directory_ + "/address"}));
  chief.ReadUntil("members start with");
  chief.Signal(SIGTERM);
  chief.Wait();
  std::string address;
  std::getline(std::ifstream(directory_ + "/address"), address);
  EXPECT_EQ(address, "chief.example:7470");
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  lagrange::chief_binary = argv[1];
  return RUN_ALL_TESTS();
}

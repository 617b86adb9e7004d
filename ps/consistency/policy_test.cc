// Conformance of every registered policy: tables in tests/testdata/policy/NAME.txt, and what all must keep. Names,
// files and ConsistencySpec's fields must be the same set.

#include "ps/consistency/policy.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lagrange {
namespace {

constexpr char kDirectory[] = "tests/testdata/policy";

std::unique_ptr<Policy> MakeFrom(const std::string& text) {
  ConsistencySpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  auto policy = MakePolicy(spec);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.ok() ? *std::move(policy) : nullptr;
}

std::vector<std::string> ReadLines(const std::string& name) {
  std::ifstream file(std::string(kDirectory) + "/" + name + ".txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, GivesTheKnownAnswers) {
  std::unique_ptr<Policy> policy;
  int checks = 0;
  for (const std::string& line : ReadLines(GetParam())) {
    if (line.rfind("spec: ", 0) == 0) {
      policy = MakeFrom(line.substr(6));
      ASSERT_NE(policy, nullptr);
    } else if (line.rfind("pushes: ", 0) == 0) {
      EXPECT_EQ(policy->push_mode(), line == "pushes: in rounds" ? PushMode::kInRounds : PushMode::kAtOnce);
    } else {
      std::istringstream words(line);
      int64_t step_clock = 0;
      int64_t min_clock = 0;
      std::string answer;
      words >> step_clock >> min_clock >> answer;
      ASSERT_TRUE(answer == "admit" || answer == "wait") << line;
      EXPECT_EQ(policy->AdmitPull(step_clock, min_clock), answer == "admit") << line;
      ++checks;
    }
  }
  EXPECT_GT(checks, 0);
}

// Else a waiting pull might never be looked at again once the clocks have moved on.
TEST_P(EveryPolicy, AdmitsAtEveryGreaterMinimum) {
  for (const std::string& line : ReadLines(GetParam())) {
    if (line.rfind("spec: ", 0) != 0) continue;
    const auto policy = MakeFrom(line.substr(6));
    for (int64_t step_clock = 0; step_clock < 12; ++step_clock) {
      bool admitted = false;
      for (int64_t min_clock = 0; min_clock < 12; ++min_clock) {
        const bool now = policy->AdmitPull(step_clock, min_clock);
        EXPECT_TRUE(now || !admitted) << step_clock << " " << min_clock;
        admitted = now;
      }
    }
  }
}

// The slowest worker itself must never wait, or all would.
TEST_P(EveryPolicy, NeverKeepsTheSlowestWaiting) {
  for (const std::string& line : ReadLines(GetParam())) {
    EXPECT_TRUE(line.rfind("spec: ", 0) != 0 || MakeFrom(line.substr(6))->AdmitPull(17, 17)) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryPolicy, testing::ValuesIn(Registry<PolicyFactory>::Names()));

TEST(Policy, RegisteredNamesAreTheGoldenFiles) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().stem());
  }
  EXPECT_THAT(Registry<PolicyFactory>::Names(), testing::UnorderedElementsAreArray(files));
}

TEST(Policy, RegisteredNamesAreTheSpecsFields) {
  std::vector<std::string> fields;
  const auto* kind = ConsistencySpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kind->field_count(); ++i) fields.push_back(kind->field(i)->name());
  EXPECT_THAT(Registry<PolicyFactory>::Names(), testing::UnorderedElementsAreArray(fields));
}

TEST(Policy, BadOptionsAreNamedWithTheirRange) {
  ConsistencySpec spec;
  EXPECT_EQ(MakePolicy(spec).status().code(), absl::StatusCode::kInvalidArgument);
  for (const int32_t staleness : {-1, 1000001}) {
    spec.mutable_ssp()->set_staleness(staleness);
    const auto made = MakePolicy(spec);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), testing::HasSubstr("consistency.ssp.staleness: expected 0 to"));
  }
}

}  // namespace
}  // namespace lagrange

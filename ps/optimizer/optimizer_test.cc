// Conformance of every registered optimizer: known answers in tests/testdata/optimizer/NAME.txt, continuity over dump
// and restore, and indifference to how a range is split. Names, files and OptimizerSpec's fields must be the same set.

#include "ps/optimizer/optimizer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/prng.h"

namespace lagrange {
namespace {

using Floats = std::vector<float>;
constexpr char kDirectory[] = "tests/testdata/optimizer";
constexpr double kTolerance = 2e-6;

Floats Numbers(absl::string_view text) {
  Floats numbers;
  for (const absl::string_view part : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    float number = 0;
    EXPECT_TRUE(absl::SimpleAtof(part, &number)) << part;
    numbers.push_back(number);
  }
  return numbers;
}

// One line "name: value" of a golden file, comments and empty lines left out.
std::vector<std::pair<std::string, std::string>> ReadGolden(const std::string& name) {
  std::ifstream file(std::string(kDirectory) + "/" + name + ".txt");
  std::vector<std::pair<std::string, std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.find(": ");
    lines.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  return lines;
}

OptimizerSpec SpecOf(const std::string& text) {
  OptimizerSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

// Parameters and slots that an optimizer is applied to in place.
struct Trained {
  Floats parameters;
  std::vector<Floats> slots;
  uint64_t step = 0;

  Trained() = default;
  Trained(const Optimizer& optimizer, Floats initial) : parameters(std::move(initial)) {
    for (const SlotSpec& slot : optimizer.slots()) slots.emplace_back(parameters.size(), slot.initial_value);
  }
  void Apply(const Optimizer& optimizer, const Floats& gradient) { Apply(optimizer, gradient, {gradient.size()}); }
  // In parts that end at the given elements.
  void Apply(const Optimizer& optimizer, const Floats& gradient, const std::vector<size_t>& ends) {
    ++step;
    size_t begin = 0;
    for (const size_t end : ends) {
      std::vector<absl::Span<const float>> in;
      std::vector<absl::Span<float>> out;
      for (Floats& slot : slots) {
        out.push_back(absl::MakeSpan(slot).subspan(begin, end - begin));
        in.push_back(out.back());
      }
      const absl::Span<float> part = absl::MakeSpan(parameters).subspan(begin, end - begin);
      optimizer.Apply(step, {absl::MakeConstSpan(gradient).subspan(begin, end - begin), part, part, in, out});
      begin = end;
    }
  }
  bool operator==(const Trained& other) const { return parameters == other.parameters && slots == other.slots; }
};

Floats Gradient(size_t count, uint64_t step) {
  Floats gradient(count);
  for (size_t i = 0; i < count; ++i) gradient[i] = RandomNormal(step, i);
  return gradient;
}

class EveryOptimizer : public testing::TestWithParam<std::string> {
 protected:
  // The first spec of the golden file.
  std::unique_ptr<Optimizer> Make() const {
    for (const auto& [name, value] : ReadGolden(GetParam())) {
      if (name == "spec") return MakeOptimizer(SpecOf(value)).value();
    }
    return nullptr;
  }
};

TEST_P(EveryOptimizer, GivesTheKnownAnswers) {
  std::unique_ptr<Optimizer> optimizer;
  Trained trained;
  int checks = 0;
  for (const auto& [name, value] : ReadGolden(GetParam())) {
    if (name == "spec") {
      auto made = MakeOptimizer(SpecOf(value));
      ASSERT_TRUE(made.ok()) << made.status();
      optimizer = *std::move(made);
    } else if (name == "initial") {
      trained = Trained(*optimizer, Numbers(value));
    } else if (name == "gradient") {
      trained.Apply(*optimizer, Numbers(value));
    } else {
      const auto& slots = optimizer->slots();
      const auto slot = std::find_if(slots.begin(), slots.end(),
                                     [&slot_name = name](const SlotSpec& s) { return s.name == slot_name; });
      ASSERT_TRUE(name == "parameters" || slot != slots.end()) << name;
      const Floats& got = name == "parameters" ? trained.parameters : trained.slots[slot - slots.begin()];
      const Floats expected = Numbers(value);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], kTolerance) << name << " of " << value;
      ++checks;
    }
  }
  EXPECT_GT(checks, 0);
}

// FAILURES B27: an optimizer that went on without its slots or its step count would differ.
TEST_P(EveryOptimizer, GoesOnAfterDumpAndRestoreBitForBit) {
  const auto optimizer = Make();
  Trained through(*optimizer, Gradient(33, 100));
  for (uint64_t step = 1; step <= 3; ++step) through.Apply(*optimizer, Gradient(33, step));
  const std::unique_ptr<Optimizer> another = Make();
  Trained restored;
  restored.parameters = through.parameters;
  restored.slots = through.slots;
  restored.step = through.step;
  for (uint64_t step = 4; step <= 6; ++step) {
    through.Apply(*optimizer, Gradient(33, step));
    restored.Apply(*another, Gradient(33, step));
  }
  EXPECT_TRUE(through == restored);
}

TEST_P(EveryOptimizer, GivesTheSameBitsHoweverTheRangeIsSplit) {
  const auto optimizer = Make();
  Trained whole(*optimizer, Gradient(67, 100));
  Trained parts = whole;
  for (uint64_t step = 1; step <= 3; ++step) {
    whole.Apply(*optimizer, Gradient(67, step));
    parts.Apply(*optimizer, Gradient(67, step), {1, 34, 34, 67});
  }
  EXPECT_TRUE(whole == parts);
}

TEST_P(EveryOptimizer, LeavesFreshParametersWhereTheGradientIsZero) {
  const auto optimizer = Make();
  Trained trained(*optimizer, {1.0f, -2.0f});
  trained.Apply(*optimizer, {0.0f, 0.0f});
  EXPECT_EQ(trained.parameters, Floats({1.0f, -2.0f}));
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryOptimizer, testing::ValuesIn(Registry<OptimizerFactory>::Names()));

TEST(Optimizer, RegisteredNamesAreTheGoldenFiles) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kDirectory)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path().stem());
  }
  EXPECT_THAT(Registry<OptimizerFactory>::Names(), testing::UnorderedElementsAreArray(files));
}

TEST(Optimizer, RegisteredNamesAreTheSpecsFields) {
  std::vector<std::string> fields;
  const auto* kind = OptimizerSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < kind->field_count(); ++i) fields.push_back(kind->field(i)->name());
  EXPECT_THAT(Registry<OptimizerFactory>::Names(), testing::UnorderedElementsAreArray(fields));
}

struct BadSpec {
  const char* text;
  const char* message;
};

TEST(Optimizer, BadOptionsAreNamedWithTheirRange) {
  const BadSpec bad[] = {
      {"", "expected one of its kinds, got none"},
      {"sgd {}", "optimizer.sgd.learning_rate: expected a finite number above 0, got 0"},
      {"sgd { learning_rate: -1 }", "got -1"},
      {"sgd { learning_rate: nan }", "got nan"},
      {"sgd { learning_rate: inf }", "got inf"},
      {"momentum { learning_rate: 0.1 momentum: 1 }",
       "optimizer.momentum.momentum: expected a number in [0, 1), got 1"},
      {"momentum { learning_rate: 0 momentum: 0.5 }", "optimizer.momentum.learning_rate"},
      {"adam { learning_rate: 0 }", "optimizer.adam.learning_rate"},
      {"adam { learning_rate: 1 beta1: -0.1 }", "optimizer.adam.beta1: expected a number in [0, 1), got -0.1"},
      {"adam { learning_rate: 1 beta2: nan }", "optimizer.adam.beta2"},
      {"adam { learning_rate: 1 epsilon: -1 }",
       "optimizer.adam.epsilon: expected a finite number of at least 0, got -1"},
  };
  for (const BadSpec& spec : bad) {
    const auto made = MakeOptimizer(SpecOf(spec.text));
    ASSERT_FALSE(made.ok()) << spec.text;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), testing::HasSubstr(spec.message));
  }
}

}  // namespace
}  // namespace lagrange

#include "ps/core/initializer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace lagrange {
namespace {

VariableSpec Variable(const std::string& initializer, std::vector<int64_t> shape, const std::string& name = "v") {
  VariableSpec variable;
  variable.set_name(name);
  for (const int64_t dimension : shape) variable.add_shape(dimension);
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(initializer, variable.mutable_initializer()));
  return variable;
}

std::vector<float> Fill(const VariableSpec& variable, uint64_t seed, int64_t first, int64_t count) {
  EXPECT_TRUE(ValidateInitializer(variable).ok()) << ValidateInitializer(variable);
  std::vector<float> values(count, -77.0f);
  FillInitialValues(variable, seed, first, absl::MakeSpan(values));
  return values;
}

const char* const kRandomKinds[] = {"uniform { minimum: -1 maximum: 3 }",
                                    "normal { mean: 1 stddev: 2 }",
                                    "glorot_uniform {}",
                                    "glorot_normal {}",
                                    "he_uniform {}",
                                    "he_normal {}"};

TEST(Initializer, AnySplitGivesTheSameBits) {
  for (const char* kind : kRandomKinds) {
    const VariableSpec variable = Variable(kind, {100, 37});
    const std::vector<float> whole = Fill(variable, 5, 0, 3700);
    for (const int64_t cut : {1, 37, 1850, 3699}) {
      std::vector<float> parts = Fill(variable, 5, 0, cut);
      const std::vector<float> rest = Fill(variable, 5, cut, 3700 - cut);
      parts.insert(parts.end(), rest.begin(), rest.end());
      EXPECT_EQ(parts, whole) << kind << " cut at " << cut;
    }
  }
}

TEST(Initializer, SeedNameAndElementAllMatter) {
  for (const char* kind : kRandomKinds) {
    const std::vector<float> values = Fill(Variable(kind, {100, 10}), 5, 0, 1000);
    EXPECT_NE(values, Fill(Variable(kind, {100, 10}), 6, 0, 1000)) << kind;
    EXPECT_NE(values, Fill(Variable(kind, {100, 10}, "w"), 5, 0, 1000)) << kind;
    EXPECT_NE(values[0], values[1]) << kind;
  }
}

TEST(Initializer, ConstantsAreConstant) {
  EXPECT_THAT(Fill(Variable("zeros {}", {4}), 1, 0, 4), testing::Each(0.0f));
  EXPECT_THAT(Fill(Variable("constant { value: 2.5 }", {4}), 1, 0, 4), testing::Each(2.5f));
}

struct Moments {
  const char* kind;
  std::vector<int64_t> shape;
  double mean;
  double variance;
  // Values lie within; 0: unbounded.
  double limit;
};

TEST(Initializer, MomentsAreThoseOfTheDefinition) {
  const Moments all[] = {
      {"uniform { minimum: -1 maximum: 3 }", {400, 500}, 1.0, 16.0 / 12, 3.0},
      {"normal { mean: 1 stddev: 2 }", {400, 500}, 1.0, 4.0, 0},
      {"glorot_uniform {}", {400, 500}, 0.0, 2.0 / 900, std::sqrt(6.0 / 900)},
      {"glorot_normal {}", {400, 500}, 0.0, 2.0 / 900, 0},
      {"he_uniform {}", {400, 500}, 0.0, 2.0 / 400, std::sqrt(6.0 / 400)},
      {"he_normal {}", {400, 500}, 0.0, 2.0 / 400, 0},
      {"he_normal {}", {3, 3, 100, 200}, 0.0, 2.0 / 900, 0},
      {"glorot_normal {}", {3, 3, 100, 200}, 0.0, 2.0 / 2700, 0},
      {"glorot_normal {}", {200000}, 0.0, 2.0 / 400000, 0},
  };
  for (const Moments& expected : all) {
    int64_t count = 1;
    for (const int64_t dimension : expected.shape) count *= dimension;
    const std::vector<float> values = Fill(Variable(expected.kind, expected.shape), 9, 0, count);
    double sum = 0;
    double squares = 0;
    double largest = 0;
    for (const float value : values) {
      sum += value;
      squares += (value - expected.mean) * (value - expected.mean);
      largest = std::max<double>(largest, std::abs(value));
    }
    // Five standard errors of the mean; the variance of n >= 180,000 values to 2%.
    EXPECT_NEAR(sum / count, expected.mean, 5 * std::sqrt(expected.variance / count)) << expected.kind;
    EXPECT_NEAR(squares / count, expected.variance, 0.02 * expected.variance) << expected.kind;
    if (expected.limit != 0) {
      EXPECT_LE(largest, expected.limit) << expected.kind;
      EXPECT_GT(largest, 0.99 * expected.limit) << expected.kind;
    }
  }
}

TEST(Initializer, AUniformStaysBelowItsMaximumAfterRounding) {
  // Near 2^24 floats are 2 apart, so that most of the upper half would round to the maximum.
  const std::vector<float> values =
      Fill(Variable("uniform { minimum: 33554432 maximum: 33554436 }", {1000}), 1, 0, 1000);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 33554436.0f);
}

// Worked by other code from the definition in common/prng.h. A job started again must find the same values for ever.
TEST(Initializer, GoldenValues) {
  const std::vector<float> uniform =
      Fill(Variable("uniform { minimum: 0 maximum: 1 }", {8}, "dense_0/kernel"), 7, 0, 4);
  const std::vector<float> normal = Fill(Variable("normal { stddev: 1 }", {8}, "dense_0/kernel"), 7, 0, 4);
  EXPECT_THAT(uniform, testing::ElementsAre(0.903906524f, 0.120983541f, 0.217691004f, 0.759827495f));
  EXPECT_THAT(normal, testing::Pointwise(testing::FloatNear(1e-6),
                                         std::vector<float>{0.325770259f, 0.107758778f, -0.813201399f, 0.276497669f}));
}

struct BadInitializer {
  const char* text;
  const char* message;
};

TEST(Initializer, BadOptionsAreNamedWithTheirVariable) {
  const BadInitializer bad[] = {
      {"", "initializer of v: expected one of its kinds, got none"},
      {"constant { value: inf }", "constant.value: expected a finite number, got inf"},
      {"uniform { minimum: 1 maximum: 1 }", "expected a finite minimum below a finite maximum, got 1 and 1"},
      {"uniform { minimum: 0 maximum: inf }", "got 0 and inf"},
      {"normal { stddev: -1 }", "a finite stddev of at least 0, got 0 and -1"},
      {"normal { mean: nan }", "got nan and 0"},
  };
  for (const BadInitializer& initializer : bad) {
    const absl::Status status = ValidateInitializer(Variable(initializer.text, {4}));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << initializer.text;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(initializer.message));
  }
}

}  // namespace
}  // namespace lagrange

// What every layer must do, run for each that registers itself: the values of its file in tests/testdata/layer, and its
// gradient against central differences of its definition in double.

#include "worker/model/layer.h"

#include <dirent.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/prng.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/model/oracle/oracle.h"

namespace lagrange {
namespace {

constexpr char kExamples[] = "tests/testdata/layer";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Half the distance of a central difference: its error falls with the square, its rounding grows with the inverse.
constexpr double kStep = 1e-5;
// Between float32 and double on sums of a few dozen terms of size 1.
constexpr double kTolerance = 2e-6;

struct Example {
  LayerSpec spec;
  std::vector<int32_t> input_shape, output_shape;
  int64_t examples = 0;
  std::vector<std::string> variable_names;
  std::vector<std::vector<int64_t>> variable_shapes;
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<float> input, output, output_gradient, input_gradient;
};

template <typename T>
std::vector<T> Numbers(std::istringstream& words) {
  std::vector<T> numbers;
  for (T number; words >> number;) numbers.push_back(number);
  return numbers;
}

void ReadLine(std::istringstream& words, Example* example) {
  std::string key;
  words >> key;
  if (key == "layer") {
    std::string text;
    std::getline(words, text);
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &example->spec)) << text;
  } else if (key == "variable") {
    words >> key;
    example->variable_names.push_back(key);
    example->variable_shapes.push_back(Numbers<int64_t>(words));
  } else if (key == "examples") {
    words >> example->examples;
  } else if (key == "input_shape") {
    example->input_shape = Numbers<int32_t>(words);
  } else if (key == "output_shape") {
    example->output_shape = Numbers<int32_t>(words);
  } else if (key == "parameter") {
    example->parameters.push_back(Numbers<float>(words));
  } else if (key == "gradient") {
    example->gradients.push_back(Numbers<float>(words));
  } else if (key == "input") {
    example->input = Numbers<float>(words);
  } else if (key == "output") {
    example->output = Numbers<float>(words);
  } else if (key == "output_gradient") {
    example->output_gradient = Numbers<float>(words);
  } else if (key == "input_gradient") {
    example->input_gradient = Numbers<float>(words);
  }
}

Example ReadExample(const std::string& name) {
  Example example;
  std::ifstream file(absl::StrCat(kExamples, "/", name, ".txt"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    ReadLine(words, &example);
  }
  return example;
}

// A layer with tensors around it, as a model keeps them.
class Harness {
 public:
  Harness(Layer* layer, std::vector<std::vector<float>> parameters, int64_t examples, std::vector<float> input)
      : layer_(layer), parameters_(std::move(parameters)), examples_(examples), input_(std::move(input)) {}

  std::vector<float> Forward() {
    if (layer_->reshapes_only()) return output_ = input_;
    int64_t elements = examples_;
    for (const int32_t dimension : layer_->output_shape()) elements *= dimension;
    output_.assign(elements, kNan);
    EXPECT_THAT(layer_->Forward(examples_, Pointers<const float>(parameters_), input_.data(), output_.data()), IsOk());
    return output_;
  }

  // The input's gradient; the variables' are in gradients(). Call Forward first.
  std::vector<float> Backward(const std::vector<float>& output_gradient) {
    if (layer_->reshapes_only()) return output_gradient;
    gradients_ = parameters_;
    for (std::vector<float>& gradient : gradients_) gradient.assign(gradient.size(), kNan);
    std::vector<float> input_gradient(input_.size(), kNan);
    EXPECT_THAT(layer_->Backward(examples_, Pointers<const float>(parameters_), input_.data(), output_.data(),
                                 output_gradient.data(), input_gradient.data(), Pointers<float>(gradients_)),
                IsOk());
    return input_gradient;
  }

  const std::vector<std::vector<float>>& gradients() const { return gradients_; }

 private:
  template <typename T>
  std::vector<T*> Pointers(std::vector<std::vector<float>>& tensors) {
    std::vector<T*> pointers;
    for (std::vector<float>& tensor : tensors) pointers.push_back(tensor.data());
    return pointers;
  }

  Layer* layer_;
  std::vector<std::vector<float>> parameters_, gradients_;
  int64_t examples_;
  std::vector<float> input_, output_;
};

// In +-[0.1, 1): no value sits on a corner such as ReLU's, where a central difference means nothing.
std::vector<float> ValuesAwayFromZero(size_t n, uint64_t seed) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = (RandomBits(seed, i) & 1 ? 1.0f : -1.0f) * (0.1f + 0.9f * RandomUnit(seed + 1, i));
  }
  return values;
}

std::vector<double> Doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_LE(std::abs(got[i] - want[i]), kTolerance * std::max(1.0, std::abs(want[i]))) << "element " << i;
  }
}

class LayerConformance : public testing::TestWithParam<std::string> {
 protected:
  // The file's sizes, with more examples and random values.
  void SetUp() override {
    example_ = ReadExample(GetParam());
    const LayerFactory* factory = Registry<LayerFactory>::Find(GetParam());
    ASSERT_NE(factory, nullptr);
    auto layer = (*factory)(example_.spec, {example_.input_shape, "the test"});
    ASSERT_THAT(layer, IsOk());
    layer_ = *std::move(layer);
    size_t elements = kExamplesCount;
    for (const int32_t dimension : example_.input_shape) elements *= dimension;
    input_ = ValuesAwayFromZero(elements, 1);
    for (size_t i = 0; i < example_.parameters.size(); ++i) {
      parameters_.push_back(ValuesAwayFromZero(example_.parameters[i].size(), 10 + i));
    }
  }

  std::vector<double> Oracle(const std::vector<double>& input, const std::vector<std::vector<double>>& parameters) {
    const OracleForward* oracle = Registry<OracleForward>::Find(GetParam());
    return oracle == nullptr ? std::vector<double>() : (*oracle)(example_.spec, kExamplesCount, input, parameters);
  }

  // d sum(weights * output) / d one of the numbers that `moved` points into, by central difference.
  std::vector<double> CentralDifferences(const std::vector<float>& weights, std::vector<double>* input,
                                         std::vector<std::vector<double>>* parameters, std::vector<double>* moved) {
    const auto weighted_sum = [&] {
      const std::vector<double> output = Oracle(*input, *parameters);
      double sum = 0;
      for (size_t i = 0; i < output.size(); ++i) sum += static_cast<double>(weights[i]) * output[i];
      return sum;
    };
    std::vector<double> differences;
    for (double& value : *moved) {
      const double before = value;
      value = before + kStep;
      const double above = weighted_sum();
      value = before - kStep;
      const double below = weighted_sum();
      value = before;
      differences.push_back((above - below) / (2 * kStep));
    }
    return differences;
  }

  static constexpr int64_t kExamplesCount = 7;
  Example example_;
  std::unique_ptr<Layer> layer_;
  std::vector<float> input_;
  std::vector<std::vector<float>> parameters_;
};

TEST_P(LayerConformance, GivesTheKnownValues) {
  ASSERT_FALSE(example_.output.empty());
  Harness harness(layer_.get(), example_.parameters, example_.examples, example_.input);
  EXPECT_EQ(layer_->output_shape(), example_.output_shape);
  EXPECT_EQ(harness.Forward(), example_.output);
  EXPECT_EQ(harness.Backward(example_.output_gradient), example_.input_gradient);
  EXPECT_EQ(harness.gradients(), example_.gradients);
}

TEST_P(LayerConformance, DeclaresTheKnownVariables) {
  const std::vector<VariableSpec> variables = layer_->variables();
  ASSERT_EQ(variables.size(), example_.variable_names.size());
  for (size_t i = 0; i < variables.size(); ++i) {
    EXPECT_EQ(variables[i].name(), example_.variable_names[i]);
    EXPECT_EQ(std::vector<int64_t>(variables[i].shape().begin(), variables[i].shape().end()),
              example_.variable_shapes[i]);
  }
}

TEST_P(LayerConformance, OutputIsItsDefinition) {
  Harness harness(layer_.get(), parameters_, kExamplesCount, input_);
  std::vector<std::vector<double>> parameters;
  for (const std::vector<float>& parameter : parameters_) parameters.push_back(Doubles(parameter));
  ExpectNear(harness.Forward(), Oracle(Doubles(input_), parameters));
}

TEST_P(LayerConformance, GradientsAreCentralDifferencesInDouble) {
  Harness harness(layer_.get(), parameters_, kExamplesCount, input_);
  const std::vector<float> weights = ValuesAwayFromZero(harness.Forward().size(), 20);
  const std::vector<float> input_gradient = harness.Backward(weights);
  std::vector<double> input = Doubles(input_);
  std::vector<std::vector<double>> parameters;
  for (const std::vector<float>& parameter : parameters_) parameters.push_back(Doubles(parameter));
  ExpectNear(input_gradient, CentralDifferences(weights, &input, &parameters, &input));
  for (size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(example_.variable_names[i]);
    ExpectNear(harness.gradients()[i], CentralDifferences(weights, &input, &parameters, &parameters[i]));
  }
}

TEST_P(LayerConformance, TheSameStepGivesTheSameBits) {
  Harness first(layer_.get(), parameters_, kExamplesCount, input_);
  Harness second(layer_.get(), parameters_, kExamplesCount, input_);
  const std::vector<float> output = first.Forward();
  const std::vector<float> input_gradient = first.Backward(output);
  EXPECT_EQ(second.Forward(), output);
  EXPECT_EQ(second.Backward(output), input_gradient);
  EXPECT_EQ(second.gradients(), first.gradients());
}

INSTANTIATE_TEST_SUITE_P(All, LayerConformance, testing::ValuesIn(Registry<LayerFactory>::Names()),
                         [](const auto& info) { return info.param; });

std::set<std::string> FilesIn(const char* path) {
  std::set<std::string> names;
  DIR* folder = opendir(path);
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (absl::EndsWith(name, ".txt")) names.emplace(name.substr(0, name.size() - 4));
  }
  closedir(folder);
  return names;
}

TEST(Layers, RegisteredNamesAreTheExamplesTheOraclesAndTheSpecsFields) {
  const std::vector<std::string> registered = Registry<LayerFactory>::Names();
  const std::set<std::string> names(registered.begin(), registered.end());
  EXPECT_EQ(names, FilesIn(kExamples));
  EXPECT_EQ(registered, Registry<OracleForward>::Names());
  std::set<std::string> fields;
  const auto* oneof = LayerSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < oneof->field_count(); ++i) fields.insert(oneof->field(i)->name());
  EXPECT_EQ(names, fields);
}

}  // namespace
}  // namespace lagrange

#include "worker/model/model.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/prng.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/model/loss.h"
#include "worker/model/oracle/oracle.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

ModelSpec ParseSpec(const std::string& text) {
  ModelSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

// Reshapes before, between and behind the layers that compute.
const char kMlp[] = R"(
    input_shape: 2 input_shape: 3 class_count: 4
    layers { name: "in" flatten {} }
    layers { name: "hidden" dense { units: 5 use_bias: true } }
    layers { name: "between" flatten {} }
    layers { name: "relu" relu {} }
    layers { name: "logits" dense { units: 4 use_bias: true } }
    layers { name: "out" flatten {} }
    loss { softmax_cross_entropy {} })";

// The gradient of the variables doesn't begin at the first layer.
const char kReluFirst[] = R"(
    input_shape: 6 class_count: 4
    layers { name: "first" relu {} }
    layers { name: "logits" dense { units: 4 } }
    layers { name: "last" relu {} }
    loss { softmax_cross_entropy {} })";

std::unique_ptr<Model> MustBuild(const ModelSpec& spec) {
  auto model = NewModel(spec);
  EXPECT_THAT(model, IsOk());
  return *std::move(model);
}

// A model with parameters, gradients and a batch of random values around it.
struct Trial {
  Trial(const std::string& text, int64_t examples) : spec(ParseSpec(text)), model(MustBuild(spec)) {
    for (const VariableSpec& variable : model->variables()) {
      size_t elements = 1;
      for (const int64_t dimension : variable.shape()) elements *= dimension;
      parameters.push_back(Random(elements, parameters.size()));
      gradients.emplace_back(elements, std::numeric_limits<float>::quiet_NaN());
    }
    SetBatch(examples);
  }

  static std::vector<float> Random(size_t n, uint64_t seed) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = 2.0f * RandomUnit(seed, i) - 1.0f;
    return values;
  }

  void SetBatch(int64_t examples) {
    inputs = Random(examples * model->input_elements(), 100);
    labels.clear();
    for (int64_t i = 0; i < examples; ++i) labels.push_back(static_cast<int32_t>(i * i % model->class_count()));
  }

  LabeledBatch batch() const { return {inputs, labels, static_cast<int64_t>(labels.size())}; }
  std::vector<const float*> parameter_pointers() const {
    std::vector<const float*> pointers;
    for (const auto& parameter : parameters) pointers.push_back(parameter.data());
    return pointers;
  }
  absl::StatusOr<BatchMetrics> ComputeGradients() {
    std::vector<float*> pointers;
    for (auto& gradient : gradients) pointers.push_back(gradient.data());
    return model->ComputeGradients(batch(), parameter_pointers(), pointers);
  }
  absl::StatusOr<BatchMetrics> Evaluate() { return model->Evaluate(batch(), parameter_pointers()); }

  ModelSpec spec;
  std::unique_ptr<Model> model;
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
};

// The batch's losses summed, by definition and in double.
double OracleLoss(const Trial& trial, const std::vector<std::vector<double>>& parameters) {
  const int64_t examples = static_cast<int64_t>(trial.labels.size());
  std::vector<double> tensor(trial.inputs.begin(), trial.inputs.end());
  size_t next = 0;
  for (const LayerSpec& layer : trial.spec.layers()) {
    std::vector<std::vector<double>> own;
    if (layer.has_dense()) own.push_back(parameters[next++]);
    if (layer.dense().use_bias()) own.push_back(parameters[next++]);
    const auto* field =
        LayerSpec::GetReflection()->GetOneofFieldDescriptor(layer, LayerSpec::descriptor()->FindOneofByName("kind"));
    tensor = (*Registry<OracleForward>::Find(field->name()))(layer, examples, tensor, own);
  }
  const int64_t classes = trial.spec.class_count();
  double loss = 0;
  for (int64_t i = 0; i < examples; ++i) {
    double total = 0;
    for (int64_t j = 0; j < classes; ++j) total += std::exp(tensor[i * classes + j]);
    loss += std::log(total) - tensor[i * classes + trial.labels[i]];
  }
  return loss;
}

class WholeModel : public testing::TestWithParam<const char*> {};

TEST_P(WholeModel, GradientsAreCentralDifferencesOfTheMeanLossInDouble) {
  constexpr double kStep = 1e-5;
  Trial trial(GetParam(), 9);
  const auto metrics = trial.ComputeGradients();
  ASSERT_THAT(metrics, IsOk());
  std::vector<std::vector<double>> parameters;
  for (const auto& parameter : trial.parameters) parameters.emplace_back(parameter.begin(), parameter.end());
  EXPECT_NEAR(metrics->loss_sum, OracleLoss(trial, parameters), 1e-5);
  for (size_t i = 0; i < parameters.size(); ++i) {
    for (size_t j = 0; j < parameters[i].size(); ++j) {
      const double before = parameters[i][j];
      parameters[i][j] = before + kStep;
      const double above = OracleLoss(trial, parameters);
      parameters[i][j] = before - kStep;
      const double below = OracleLoss(trial, parameters);
      parameters[i][j] = before;
      ASSERT_NEAR(trial.gradients[i][j], (above - below) / (2 * kStep) / 9, 2e-6)
          << trial.model->variables()[i].name() << " element " << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, WholeModel, testing::Values(kMlp, kReluFirst));

TEST(Model, DeclaresItsVariablesInOrder) {
  const auto model = MustBuild(ParseSpec(kMlp));
  std::vector<std::string> described;
  for (const VariableSpec& variable : model->variables()) {
    described.push_back(variable.name());
    for (const int64_t dimension : variable.shape()) described.back() += " " + std::to_string(dimension);
  }
  EXPECT_EQ(described,
            (std::vector<std::string>{"hidden/kernel 6 5", "hidden/bias 5", "logits/kernel 5 4", "logits/bias 4"}));
  EXPECT_EQ(model->input_elements(), 6);
  EXPECT_EQ(model->class_count(), 4);
}

TEST(Model, InitializersReachTheVariables) {
  const auto model = MustBuild(ParseSpec(R"(
      input_shape: 2 class_count: 3
      layers { name: "d" dense { units: 3 use_bias: true kernel_initializer { he_normal {} }
                                 bias_initializer { constant { value: 7 } } } }
      loss { softmax_cross_entropy {} })"));
  EXPECT_TRUE(model->variables()[0].initializer().has_he_normal());
  EXPECT_EQ(model->variables()[1].initializer().constant().value(), 7);
}

TEST(Model, ZeroParametersGiveTheLossOfAGuess) {
  Trial trial(kMlp, 8);
  for (auto& parameter : trial.parameters) parameter.assign(parameter.size(), 0.0f);
  trial.labels = {0, 0, 0, 0, 1, 1, 2, 3};
  const auto metrics = trial.ComputeGradients();
  ASSERT_THAT(metrics, IsOk());
  EXPECT_EQ(metrics->example_count, 8);
  EXPECT_NEAR(metrics->loss_sum, 8 * std::log(4.0), 1e-12);
  EXPECT_EQ(metrics->correct_count, 4);
  EXPECT_EQ(trial.gradients[3], (std::vector<float>{0.25f - 0.5f, 0.25f - 0.25f, 0.25f - 0.125f, 0.25f - 0.125f}));
  EXPECT_EQ(trial.gradients[2], std::vector<float>(20, 0.0f));
}

TEST(Model, LossFallsAlongTheGradient) {
  Trial trial(kMlp, 16);
  double before = std::numeric_limits<double>::infinity();
  for (int step = 0; step < 200; ++step) {
    const auto metrics = trial.ComputeGradients();
    ASSERT_THAT(metrics, IsOk());
    if (step % 20 == 0) {
      EXPECT_LT(metrics->loss_sum, before) << "step " << step;
      before = metrics->loss_sum;
    }
    for (size_t i = 0; i < trial.parameters.size(); ++i) {
      for (size_t j = 0; j < trial.parameters[i].size(); ++j) {
        trial.parameters[i][j] -= 0.3f * trial.gradients[i][j];
      }
    }
  }
  EXPECT_LT(before, 16 * 0.3);
}

TEST(Model, EvaluationGivesTheMetricsOfTheStep) {
  Trial trial(kMlp, 33);
  const auto step = trial.ComputeGradients();
  const auto evaluation = trial.Evaluate();
  ASSERT_THAT(step, IsOk());
  ASSERT_THAT(evaluation, IsOk());
  EXPECT_EQ(evaluation->loss_sum, step->loss_sum);
  EXPECT_EQ(evaluation->correct_count, step->correct_count);
  EXPECT_EQ(evaluation->example_count, 33);
}

TEST(Model, BitsDoNotDependOnEarlierBatches) {
  Trial fresh(kMlp, 5), used(kMlp, 3);
  ASSERT_THAT(used.ComputeGradients(), IsOk());
  used.SetBatch(40);
  ASSERT_THAT(used.Evaluate(), IsOk());
  used.SetBatch(5);
  const auto got = used.ComputeGradients();
  const auto want = fresh.ComputeGradients();
  ASSERT_THAT(got, IsOk());
  ASSERT_THAT(want, IsOk());
  EXPECT_EQ(got->loss_sum, want->loss_sum);
  EXPECT_EQ(used.gradients, fresh.gradients);
}

TEST(Model, ANanInputIsSeenInLossAndGradient) {
  Trial trial(kMlp, 4);
  trial.inputs[7] = std::numeric_limits<float>::quiet_NaN();
  const auto metrics = trial.ComputeGradients();
  ASSERT_THAT(metrics, IsOk());
  EXPECT_TRUE(std::isnan(metrics->loss_sum));
  EXPECT_TRUE(std::isnan(trial.gradients[3][0]));
}

TEST(Model, LabelsThatAreNoClassAreRefused) {
  for (const int32_t label : {-1, 4}) {
    Trial trial(kMlp, 4);
    trial.labels[2] = label;
    const auto message =
        HasSubstr("example 2 of the batch: expected a label from 0 to 3, got " + std::to_string(label));
    EXPECT_THAT(trial.ComputeGradients(), StatusIs(absl::StatusCode::kInvalidArgument, message));
    EXPECT_THAT(trial.Evaluate(), StatusIs(absl::StatusCode::kInvalidArgument, message));
  }
}

TEST(Model, SizesThatDisagreeAreRefused) {
  Trial trial(kMlp, 4);
  trial.inputs.pop_back();
  EXPECT_THAT(trial.ComputeGradients(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 24 inputs and 4 labels, got 23 and 4")));
  trial.SetBatch(0);
  EXPECT_THAT(trial.Evaluate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got 0")));
  trial.SetBatch(1);
  trial.parameters.pop_back();
  EXPECT_THAT(trial.Evaluate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected 4 variables, got 3")));
}

struct BadSpec {
  const char* name;
  const char* text;
  const char* message;
};

class BadModel : public testing::TestWithParam<BadSpec> {};

TEST_P(BadModel, IsRefusedByFieldPath) {
  EXPECT_THAT(NewModel(ParseSpec(GetParam().text)),
              StatusIs(absl::StatusCode::kInvalidArgument, std::string(GetParam().message)));
}

const BadSpec kBadSpecs[] = {
    {"InputUnits",
     R"(input_shape: 28 input_shape: 28 class_count: 10 layers { name: "f" flatten {} }
        layers { name: "d" dense { units: 10 input_units: 100 } } loss { softmax_cross_entropy {} })",
     "model.layers[1].dense: input_units is 100, but the layer before gives 784"},
    {"InputUnitsOfTheFirst",
     R"(input_shape: 5 class_count: 10 layers { name: "d" dense { units: 10 input_units: 4 } })",
     "model.layers[0].dense: input_units is 4, but the model's input gives 5"},
    {"DenseOnAnImage", R"(input_shape: 28 input_shape: 28 class_count: 10 layers { name: "d" dense { units: 10 } })",
     "model.layers[0].dense: expected an input of 1 dimension, but the model's input gives [28, 28]; a flatten layer "
     "makes it one"},
    {"LastLayer",
     R"(input_shape: 5 class_count: 10 layers { name: "d" dense { units: 12 } } layers { name: "r" relu {} })",
     "model.layers[1].relu: the last layer must give [10], model.class_count, but gives [12]"},
    {"NoUnits", R"(input_shape: 5 class_count: 10 layers { name: "d" dense {} })",
     "model.layers[0].dense: units: expected 1 to 1048576, got 0"},
    {"TwoOfOneName",
     R"(input_shape: 5 class_count: 5 layers { name: "d" dense { units: 5 } } layers { name: "d" dense { units: 5 } })",
     "model.layers[1].dense: expected a name of its own, but another layer has the variable \"d/kernel\""},
    {"NoKind", R"(input_shape: 5 class_count: 5 layers { name: "d" })",
     "model.layers[0]: expected a layer's kind, one of dense, flatten, relu; got none"},
    {"NoLayers", R"(input_shape: 5 class_count: 5)", "model.layers: expected 1 to 1000 layers, got 0"},
    {"NoLoss", R"(input_shape: 5 class_count: 5 layers { name: "r" relu {} })",
     "model.loss: expected one of softmax_cross_entropy, got \"\""},
    {"NegativeInput", R"(input_shape: 5 input_shape: -1 class_count: 5 layers { name: "r" relu {} })",
     "model.input_shape: expected dimensions of at least 1 and a product of at most 268435456, got [5, -1]"},
    {"HugeInput", R"(input_shape: 2147483647 input_shape: 2147483647 class_count: 5 layers { name: "r" relu {} })",
     "model.input_shape: expected dimensions of at least 1 and a product of at most 268435456, got [2147483647, "
     "2147483647]"},
};

INSTANTIATE_TEST_SUITE_P(All, BadModel, testing::ValuesIn(kBadSpecs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Model, AKernelTooLargeToCutIsRefusedByFieldPath) {
  EXPECT_THAT(
      NewModel(ParseSpec(R"(input_shape: 268435456 class_count: 10 layers { name: "d" dense { units: 1048576 } })")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               testing::AllOf(testing::StartsWith("model.layers[0].dense: "), HasSubstr("d/kernel"))));
}

TEST(Losses, RegisteredNamesAreTheSpecsFields) {
  const std::vector<std::string> registered = Registry<LossFactory>::Names();
  std::set<std::string> fields;
  const auto* oneof = LossSpec::descriptor()->FindOneofByName("kind");
  for (int i = 0; i < oneof->field_count(); ++i) fields.insert(oneof->field(i)->name());
  EXPECT_EQ(std::set<std::string>(registered.begin(), registered.end()), fields);
}

}  // namespace
}  // namespace lagrange

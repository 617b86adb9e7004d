#include "worker/model/model.h"

#include <algorithm>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/partition.h"
#include "common/status.h"
#include "worker/model/layer.h"
#include "worker/model/loss.h"

namespace lagrange {
namespace {

// Of one example's tensor, as job.proto says of the input.
constexpr int64_t kMaxElements = int64_t{1} << 28;
// A batch, as job.proto says of batch_size; evaluation stays below it too.
constexpr int64_t kMaxExamples = int64_t{1} << 20;
// With the two above, bytes of activations stay below 2^60 and can't overflow.
constexpr int kMaxLayers = 1000;

// Floats on a cache line's boundary, so that no two tensors share a line.
class FloatBuffer {
 public:
  float* data() const { return floats_.get(); }

  // Drops what it held; false when there is no memory.
  bool Allocate(int64_t count) {
    floats_.reset();
    void* memory = ::operator new(count * sizeof(float), kAlignment, std::nothrow);
    floats_.reset(static_cast<float*>(memory));
    return memory != nullptr;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(float* floats) const { ::operator delete(floats, kAlignment); }
  };
  std::unique_ptr<float, Delete> floats_;
};

int64_t RoundUpToLine(int64_t floats) { return (floats + 15) / 16 * 16; }

struct Stage {
  std::unique_ptr<Layer> layer;
  // Its variables among the model's.
  size_t variable_begin = 0;
  size_t variable_count = 0;
  int64_t output_elements = 0;
  // [examples, output elements]; of the stage before when the layer only reshapes.
  float* output = nullptr;
};

// Layers one after the other, and a loss.
class LayeredModel : public Model {
 public:
  LayeredModel(std::vector<Stage> stages, std::vector<VariableSpec> variables, std::unique_ptr<Loss> loss,
               int64_t input_elements, int32_t class_count)
      : stages_(std::move(stages)),
        variables_(std::move(variables)),
        loss_(std::move(loss)),
        input_elements_(input_elements),
        class_count_(class_count) {
    while (first_trained_ < stages_.size() && stages_[first_trained_].variable_count == 0) ++first_trained_;
  }

  const std::vector<VariableSpec>& variables() const override { return variables_; }
  int64_t input_elements() const override { return input_elements_; }
  int32_t class_count() const override { return class_count_; }

  absl::StatusOr<BatchMetrics> ComputeGradients(const LabeledBatch& batch, absl::Span<const float* const> parameters,
                                                absl::Span<float* const> gradients) override {
    RETURN_IF_ERROR(Check(batch, parameters.size()));
    if (gradients.size() != variables_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradients: expected ", variables_.size(), " variables, got ", gradients.size()));
    }
    ASSIGN_OR_RETURN(const float* outputs, Forward(batch, parameters));
    BatchMetrics metrics;
    RETURN_IF_ERROR(
        loss_->Compute(batch.example_count, class_count_, outputs, batch.labels.data(), &metrics, gradient_of_output_));
    RETURN_IF_ERROR(Backward(batch, parameters, gradients));
    return metrics;
  }

  absl::StatusOr<BatchMetrics> Evaluate(const LabeledBatch& batch, absl::Span<const float* const> parameters) override {
    RETURN_IF_ERROR(Check(batch, parameters.size()));
    ASSIGN_OR_RETURN(const float* outputs, Forward(batch, parameters));
    BatchMetrics metrics;
    RETURN_IF_ERROR(loss_->Compute(batch.example_count, class_count_, outputs, batch.labels.data(), &metrics, nullptr));
    return metrics;
  }

 private:
  absl::Status Check(const LabeledBatch& batch, size_t parameter_count) {
    const int64_t examples = batch.example_count;
    if (examples < 1 || examples > kMaxExamples) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch: expected 1 to ", kMaxExamples, " examples, got ", examples));
    }
    if (static_cast<int64_t>(batch.inputs.size()) != examples * input_elements_ ||
        static_cast<int64_t>(batch.labels.size()) != examples) {
      return absl::InvalidArgumentError(
          absl::StrCat("batch of ", examples, " examples: expected ", examples * input_elements_, " inputs and ",
                       examples, " labels, got ", batch.inputs.size(), " and ", batch.labels.size()));
    }
    for (int64_t i = 0; i < examples; ++i) {
      if (batch.labels[i] < 0 || batch.labels[i] >= class_count_) {
        return absl::InvalidArgumentError(absl::StrCat("example ", i, " of the batch: expected a label from 0 to ",
                                                       class_count_ - 1, ", got ", batch.labels[i]));
      }
    }
    if (parameter_count != variables_.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameters: expected ", variables_.size(), " variables, got ", parameter_count));
    }
    return examples <= capacity_ ? absl::OkStatus() : Reserve(examples);
  }

  // Lays out outputs and two gradients for batches of so many examples; kept until a larger batch comes.
  absl::Status Reserve(int64_t examples) {
    capacity_ = 0;
    int64_t floats = 0;
    int64_t widest = 0;
    for (const Stage& stage : stages_) {
      if (!stage.layer->reshapes_only()) floats += RoundUpToLine(stage.output_elements * examples);
      widest = std::max(widest, RoundUpToLine(stage.output_elements * examples));
    }
    if (!buffer_.Allocate(floats + 2 * widest)) {
      return absl::ResourceExhaustedError(absl::StrCat("a batch of ", examples, " examples needs ",
                                                       (floats + 2 * widest) * sizeof(float),
                                                       " bytes of activations, which this machine doesn't have"));
    }
    float* next = buffer_.data();
    for (Stage& stage : stages_) {
      if (stage.layer->reshapes_only()) continue;
      stage.output = next;
      next += RoundUpToLine(stage.output_elements * examples);
    }
    gradient_of_output_ = next;
    gradient_of_input_ = next + widest;
    capacity_ = examples;
    return absl::OkStatus();
  }

  // The last layer's output.
  absl::StatusOr<const float*> Forward(const LabeledBatch& batch, absl::Span<const float* const> parameters) {
    const float* input = batch.inputs.data();
    for (Stage& stage : stages_) {
      if (stage.layer->reshapes_only()) continue;
      RETURN_IF_ERROR(stage.layer->Forward(
          batch.example_count, parameters.subspan(stage.variable_begin, stage.variable_count), input, stage.output));
      input = stage.output;
    }
    return input;
  }

  // From the last layer to the first one with variables; what the layers before it got is nobody's gradient.
  absl::Status Backward(const LabeledBatch& batch, absl::Span<const float* const> parameters,
                        absl::Span<float* const> gradients) {
    float* of_output = gradient_of_output_;
    float* of_input = gradient_of_input_;
    for (size_t i = stages_.size(); i-- > first_trained_;) {
      const Stage& stage = stages_[i];
      if (stage.layer->reshapes_only()) continue;
      RETURN_IF_ERROR(
          stage.layer->Backward(batch.example_count, parameters.subspan(stage.variable_begin, stage.variable_count),
                                InputOf(i, batch), stage.output, of_output, i == first_trained_ ? nullptr : of_input,
                                gradients.subspan(stage.variable_begin, stage.variable_count)));
      std::swap(of_output, of_input);
    }
    return absl::OkStatus();
  }

  const float* InputOf(size_t i, const LabeledBatch& batch) const {
    while (i-- > 0) {
      if (!stages_[i].layer->reshapes_only()) return stages_[i].output;
    }
    return batch.inputs.data();
  }

  std::vector<Stage> stages_;
  std::vector<VariableSpec> variables_;
  std::unique_ptr<Loss> loss_;
  int64_t input_elements_;
  int32_t class_count_;
  size_t first_trained_ = 0;

  // Examples that buffer_ has room for.
  int64_t capacity_ = 0;
  FloatBuffer buffer_;
  float* gradient_of_output_ = nullptr;
  float* gradient_of_input_ = nullptr;
};

// The field that is set in a message's oneof "kind", or "".
std::string KindOf(const google::protobuf::Message& spec) {
  const auto* oneof = spec.GetDescriptor()->FindOneofByName("kind");
  const auto* field = spec.GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  return field == nullptr ? "" : field->name();
}

std::string DescribeShape(const std::vector<int32_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// InvalidArgument when the shape is not that of a tensor we take.
absl::StatusOr<int64_t> CountElements(const std::vector<int32_t>& shape) {
  int64_t elements = 1;
  for (const int32_t dimension : shape) {
    if (dimension < 1 || elements * dimension > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("expected dimensions of at least 1 and a product of at most ",
                                                     kMaxElements, ", got ", DescribeShape(shape)));
    }
    elements *= dimension;
  }
  return elements;
}

absl::StatusOr<std::unique_ptr<Layer>> NewLayer(const LayerSpec& spec, const LayerInput& input) {
  const std::string kind = KindOf(spec);
  if (kind.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("expected a layer's kind, one of ",
                                                   absl::StrJoin(Registry<LayerFactory>::Names(), ", "), "; got none"));
  }
  const LayerFactory* factory = Registry<LayerFactory>::Find(kind);
  if (factory == nullptr) {
    return absl::UnimplementedError(absl::StrCat("this program lacks the layer \"", kind, "\"; it has ",
                                                 absl::StrJoin(Registry<LayerFactory>::Names(), ", ")));
  }
  return (*factory)(spec, input);
}

absl::StatusOr<std::unique_ptr<Loss>> NewLoss(const LossSpec& spec) {
  const std::string kind = KindOf(spec);
  const LossFactory* factory = Registry<LossFactory>::Find(kind);
  if (factory == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.loss: expected one of ", absl::StrJoin(Registry<LossFactory>::Names(), ", "), ", got \"", kind, "\""));
  }
  return (*factory)(spec);
}

// Puts the layer's variables behind those before it.
absl::Status AddVariables(Stage* stage, std::set<std::string>* names, std::vector<VariableSpec>* variables) {
  stage->variable_begin = variables->size();
  for (VariableSpec& variable : stage->layer->variables()) {
    RETURN_IF_ERROR(ElementCount(variable).status());
    if (!names->insert(variable.name()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a name of its own, but another layer has the variable \"", variable.name(), "\""));
    }
    variables->push_back(std::move(variable));
  }
  stage->variable_count = variables->size() - stage->variable_begin;
  return absl::OkStatus();
}

absl::Status AddStage(const LayerSpec& spec, LayerInput* input, std::set<std::string>* names,
                      std::vector<Stage>* stages, std::vector<VariableSpec>* variables) {
  Stage stage;
  ASSIGN_OR_RETURN(stage.layer, NewLayer(spec, *input));
  RETURN_IF_ERROR(AddVariables(&stage, names, variables));
  ASSIGN_OR_RETURN(stage.output_elements, CountElements(stage.layer->output_shape()));
  *input = {stage.layer->output_shape(), "the layer before"};
  stages->push_back(std::move(stage));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> NewModel(const ModelSpec& spec) {
  LayerInput input{{spec.input_shape().begin(), spec.input_shape().end()}, "the model's input"};
  const absl::StatusOr<int64_t> input_elements = CountElements(input.shape);
  if (!input_elements.ok()) return Annotate(input_elements.status(), "model.input_shape");
  if (spec.layers_size() < 1 || spec.layers_size() > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.layers: expected 1 to ", kMaxLayers, " layers, got ", spec.layers_size()));
  }
  std::vector<Stage> stages;
  std::vector<VariableSpec> variables;
  std::set<std::string> names;
  std::string path;
  for (int i = 0; i < spec.layers_size(); ++i) {
    const std::string kind = KindOf(spec.layers(i));
    path = absl::StrCat("model.layers[", i, "]", kind.empty() ? "" : ".", kind);
    RETURN_IF_ERROR(Annotate(AddStage(spec.layers(i), &input, &names, &stages, &variables), path));
  }
  if (input.shape != std::vector<int32_t>{spec.class_count()}) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the last layer must give [", spec.class_count(),
                                                   "], model.class_count, but gives ", DescribeShape(input.shape)));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Loss> loss, NewLoss(spec.loss()));
  return std::make_unique<LayeredModel>(std::move(stages), std::move(variables), std::move(loss), *input_elements,
                                        spec.class_count());
}

}  // namespace lagrange

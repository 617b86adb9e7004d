// One training step and one evaluation of the 784-256-128-10 network, and what a step spends outside its matrix
// products.
//   bazel run -c opt //tests/benchmarks/compute:model_step

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/prng.h"
#include "google/protobuf/text_format.h"
#include "kernels/matmul.h"
#include "kernels/pointwise.h"
#include "kernels/softmax_cross_entropy.h"
#include "tests/benchmarks/compute/timing.h"
#include "worker/model/model.h"

namespace lagrange {
namespace {

constexpr char kMlp[] = R"(
    input_shape: 28 input_shape: 28 class_count: 10
    layers { name: "flatten" flatten {} }
    layers { name: "dense_0" dense { units: 256 use_bias: true } }
    layers { name: "relu_0" relu {} }
    layers { name: "dense_1" dense { units: 128 use_bias: true } }
    layers { name: "relu_1" relu {} }
    layers { name: "dense_2" dense { units: 10 use_bias: true } }
    loss { softmax_cross_entropy {} })";

std::vector<float> Values(int64_t n, float scale) {
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = (RandomUnit(n, i) - 0.5f) * scale;
  return values;
}

void MustBeOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void PrintStep(int64_t examples) {
  ModelSpec spec;
  if (!google::protobuf::TextFormat::ParseFromString(kMlp, &spec)) std::abort();
  auto model = NewModel(spec);
  MustBeOk(model.status());
  std::vector<std::vector<float>> parameters, gradients;
  std::vector<const float*> parameter_pointers;
  std::vector<float*> gradient_pointers;
  for (const VariableSpec& variable : (*model)->variables()) {
    int64_t elements = 1;
    for (const int64_t dimension : variable.shape()) elements *= dimension;
    parameters.push_back(Values(elements, 0.1f));
    gradients.emplace_back(elements);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameter_pointers.push_back(parameters[i].data());
    gradient_pointers.push_back(gradients[i].data());
  }
  const std::vector<float> inputs = Values(examples * 784, 1.0f);
  std::vector<int32_t> labels(examples);
  for (int64_t i = 0; i < examples; ++i) labels[i] = static_cast<int32_t>(i % 10);
  const LabeledBatch batch{inputs, labels, examples};
  const double step = LeastSeconds(
      [&] { MustBeOk((*model)->ComputeGradients(batch, parameter_pointers, gradient_pointers).status()); });
  const double evaluation = LeastSeconds([&] { MustBeOk((*model)->Evaluate(batch, parameter_pointers).status()); });
  std::printf("batch %4ld: step %7.1f us (%.0f examples/s), evaluation %7.1f us\n", static_cast<long>(examples),
              step * 1e6, static_cast<double>(examples) / step, evaluation * 1e6);
  std::fflush(stdout);
}

void PrintPointwise(int64_t rows, int64_t cols) {
  const std::vector<float> bias = Values(cols, 1.0f), dy = Values(rows * cols, 1.0f);
  std::vector<float> x = Values(rows * cols, 1.0f), y(rows * cols), sums(cols);
  const auto print = [&](const char* name, int bytes_per_element, double seconds) {
    std::printf("  %-14s [%ld, %ld] %6.2f us %6.1f GB/s\n", name, static_cast<long>(rows), static_cast<long>(cols),
                seconds * 1e6, 1e-9 * static_cast<double>(rows * cols * bytes_per_element) / seconds);
  };
  print("AddBias", 8, LeastSeconds([&] { MustBeOk(kernels::AddBias(rows, cols, bias.data(), x.data())); }));
  print("Relu", 8, LeastSeconds([&] { MustBeOk(kernels::Relu(rows * cols, x.data(), y.data())); }));
  print("ReluGradient", 12,
        LeastSeconds([&] { MustBeOk(kernels::ReluGradient(rows * cols, y.data(), dy.data(), x.data())); }));
  print("SumRows", 4, LeastSeconds([&] { MustBeOk(kernels::SumRows(rows, cols, dy.data(), sums.data())); }));
}

void PrintLoss(int64_t rows) {
  const std::vector<float> logits = Values(rows * 10, 4.0f);
  const std::vector<int32_t> labels(rows, 3);
  std::vector<float> gradient(rows * 10);
  kernels::CrossEntropySums sums;
  const double seconds = LeastSeconds(
      [&] { MustBeOk(kernels::SoftmaxCrossEntropy(rows, 10, logits.data(), labels.data(), &sums, gradient.data())); });
  std::printf("  softmax cross-entropy [%ld, 10] %6.2f us\n", static_cast<long>(rows), seconds * 1e6);
}

}  // namespace
}  // namespace lagrange

int main() {
  for (const int threads : {1, 2}) {
    std::printf("threads %d\n", threads);
    lagrange::kernels::SetComputeThreads(threads);
    for (const int64_t examples : {1, 64, 128}) lagrange::PrintStep(examples);
  }
  lagrange::PrintPointwise(64, 256);
  lagrange::PrintLoss(64);
}

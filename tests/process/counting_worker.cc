// A worker whose model counts: for tests that must know exactly how often each record took part.
//
// Its variables, "seen_0" and "seen_1" (of one size, so that two ps hold one each), have an element for each record. A
// batch's gradient is -1 at the elements of its records and 0 elsewhere, so that SGD with learning rate 1 adds exactly
// 1 for each time that a record is in an applied batch (floats hold such counts exactly up to 2^24). Records tell their
// number by their four pixels, most significant first; bsp averages over a round's workers and so does not count.
//
// With COUNTING_WORKER_THROWS_AT_BATCH=N in its environment, computing its Nth batch throws, as a fault in a model may.

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "worker/model/model.h"
#include "worker/worker_main.h"

namespace lagrange {
namespace {

// Of tests/process/recovery_test.py.
constexpr int64_t kRecordCount = 1024;
constexpr int kVariableCount = 2;

class CountingModel : public Model {
 public:
  // Throws at its batch of that number, from 1; 0: never.
  explicit CountingModel(int64_t throws_at_batch) : throws_at_batch_(throws_at_batch) {
    for (int i = 0; i < kVariableCount; ++i) {
      VariableSpec seen;
      seen.set_name(absl::StrCat("seen_", i));
      seen.add_shape(kRecordCount);
      seen.mutable_initializer()->mutable_zeros();
      variables_.push_back(seen);
    }
  }

  const std::vector<VariableSpec>& variables() const override { return variables_; }
  int64_t input_elements() const override { return 4; }
  int32_t class_count() const override { return 4; }

  absl::StatusOr<BatchMetrics> ComputeGradients(const LabeledBatch& batch, absl::Span<const float* const> parameters,
                                                absl::Span<float* const> gradients) override {
    // An index past the end: std::out_of_range.
    if (++batches_ == throws_at_batch_) static_cast<void>(variables_.at(variables_.size()));
    for (float* const gradient : gradients) std::fill(gradient, gradient + kRecordCount, 0.f);
    for (int64_t example = 0; example < batch.example_count; ++example) {
      int64_t record = 0;
      for (int64_t byte = 0; byte < 4; ++byte) {
        // The reader's scale is 1/255.
        record = record * 256 + std::lround(batch.inputs[example * 4 + byte] * 255);
      }
      if (record >= kRecordCount) return absl::InvalidArgumentError(absl::StrCat("no such record: ", record));
      for (float* const gradient : gradients) gradient[record] = -1;
    }
    return Evaluate(batch, parameters);
  }

  absl::StatusOr<BatchMetrics> Evaluate(const LabeledBatch& batch, absl::Span<const float* const> parameters) override {
    BatchMetrics metrics;
    metrics.example_count = batch.example_count;
    return metrics;
  }

 private:
  const int64_t throws_at_batch_;
  int64_t batches_ = 0;
  std::vector<VariableSpec> variables_;
};

absl::StatusOr<std::unique_ptr<Model>> MakeCountingModel(const ModelSpec& spec) {
  int64_t throws_at_batch = 0;
  const char* const text = std::getenv("COUNTING_WORKER_THROWS_AT_BATCH");
  if (text != nullptr && !absl::SimpleAtoi(text, &throws_at_batch)) {
    return absl::InvalidArgumentError(absl::StrCat("COUNTING_WORKER_THROWS_AT_BATCH is not a number: ", text));
  }
  return std::make_unique<CountingModel>(throws_at_batch);
}

}  // namespace
}  // namespace lagrange

int main(int argc, char** argv) {
  lagrange::WorkerParts parts;
  parts.make_model = lagrange::MakeCountingModel;
  return lagrange::WorkerMain(argc, argv, parts);
}

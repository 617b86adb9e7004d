#include "ps/core/initializer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/prng.h"

namespace lagrange {

namespace {

// In double: products of dimensions may pass 2^53 only in shapes that no ps could hold.
struct Fans {
  double in = 1;
  double out = 1;
};

Fans FansOf(const VariableSpec& variable) {
  const int rank = variable.shape_size();
  if (rank == 0) return {};
  const double last = static_cast<double>(variable.shape(rank - 1));
  if (rank == 1) return {last, last};
  double receptive = 1;
  for (int i = 0; i < rank - 2; ++i) receptive *= static_cast<double>(variable.shape(i));
  return {receptive * static_cast<double>(variable.shape(rank - 2)), receptive * last};
}

void FillUniform(uint64_t key, int64_t first_element, double minimum, double maximum, absl::Span<float> values) {
  const float largest = std::nextafter(static_cast<float>(maximum), static_cast<float>(minimum));
  for (size_t i = 0; i < values.size(); ++i) {
    const double unit = RandomUnit(key, first_element + i);
    // Rounding to float could reach the open end.
    values[i] = std::min(static_cast<float>(minimum + (maximum - minimum) * unit), largest);
  }
}

void FillNormal(uint64_t key, int64_t first_element, double mean, double stddev, absl::Span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(mean + stddev * RandomNormal(key, first_element + i));
  }
}

absl::Status Refuse(const VariableSpec& variable, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("initializer of ", variable.name(), ": ", what));
}

}  // namespace

absl::Status ValidateInitializer(const VariableSpec& variable) {
  const InitializerSpec& spec = variable.initializer();
  switch (spec.kind_case()) {
    case InitializerSpec::KIND_NOT_SET:
      return Refuse(variable, "expected one of its kinds, got none");
    case InitializerSpec::kConstant:
      if (std::isfinite(spec.constant().value())) break;
      return Refuse(variable, absl::StrCat("constant.value: expected a finite number, got ", spec.constant().value()));
    case InitializerSpec::kUniform: {
      const float minimum = spec.uniform().minimum();
      const float maximum = spec.uniform().maximum();
      if (std::isfinite(minimum) && std::isfinite(maximum) && minimum < maximum) break;
      return Refuse(variable, absl::StrCat("uniform: expected a finite minimum below a finite maximum, got ", minimum,
                                           " and ", maximum));
    }
    case InitializerSpec::kNormal: {
      const float mean = spec.normal().mean();
      const float stddev = spec.normal().stddev();
      if (std::isfinite(mean) && std::isfinite(stddev) && stddev >= 0.0f) break;
      return Refuse(variable, absl::StrCat("normal: expected a finite mean and a finite stddev of at least 0, got ",
                                           mean, " and ", stddev));
    }
    default:
      break;
  }
  return absl::OkStatus();
}

void FillInitialValues(const VariableSpec& variable, uint64_t job_seed, int64_t first_element,
                       absl::Span<float> values) {
  const InitializerSpec& spec = variable.initializer();
  const uint64_t key = CombineKeys(job_seed, KeyOfName(variable.name()));
  const Fans fans = FansOf(variable);
  switch (spec.kind_case()) {
    case InitializerSpec::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      return;
    case InitializerSpec::kConstant:
      std::fill(values.begin(), values.end(), spec.constant().value());
      return;
    case InitializerSpec::kUniform:
      return FillUniform(key, first_element, spec.uniform().minimum(), spec.uniform().maximum(), values);
    case InitializerSpec::kNormal:
      return FillNormal(key, first_element, spec.normal().mean(), spec.normal().stddev(), values);
    case InitializerSpec::kGlorotUniform: {
      const double limit = std::sqrt(6.0 / (fans.in + fans.out));
      return FillUniform(key, first_element, -limit, limit, values);
    }
    case InitializerSpec::kHeUniform: {
      const double limit = std::sqrt(6.0 / fans.in);
      return FillUniform(key, first_element, -limit, limit, values);
    }
    case InitializerSpec::kGlorotNormal:
      return FillNormal(key, first_element, 0.0, std::sqrt(2.0 / (fans.in + fans.out)), values);
    case InitializerSpec::kHeNormal:
      return FillNormal(key, first_element, 0.0, std::sqrt(2.0 / fans.in), values);
    case InitializerSpec::KIND_NOT_SET:
      break;
  }
  CHECK(false && "ValidateInitializer was not called");
}

}  // namespace lagrange

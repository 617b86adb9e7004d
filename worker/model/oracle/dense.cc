#include "worker/model/oracle/oracle.h"

namespace lagrange {
namespace {

std::vector<double> DenseForward(const LayerSpec& spec, int64_t examples, const std::vector<double>& input,
                                 const std::vector<std::vector<double>>& parameters) {
  const int64_t units = spec.dense().units();
  const int64_t input_units = static_cast<int64_t>(input.size()) / examples;
  std::vector<double> output;
  for (int64_t example = 0; example < examples; ++example) {
    for (int64_t unit = 0; unit < units; ++unit) {
      double sum = spec.dense().use_bias() ? parameters[1][unit] : 0.0;
      for (int64_t i = 0; i < input_units; ++i) {
        sum += input[example * input_units + i] * parameters[0][i * units + unit];
      }
      output.push_back(sum);
    }
  }
  return output;
}

const OracleRegistration kDense{"dense", DenseForward};

}  // namespace
}  // namespace lagrange

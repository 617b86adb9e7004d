#include <algorithm>

#include "worker/model/oracle/oracle.h"

namespace lagrange {
namespace {

const OracleRegistration kRelu{
    "relu", [](const LayerSpec&, int64_t, const std::vector<double>& input, const std::vector<std::vector<double>>&) {
      std::vector<double> output;
      for (const double x : input) output.push_back(std::max(x, 0.0));
      return output;
    }};

}  // namespace
}  // namespace lagrange

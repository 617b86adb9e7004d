#include "worker/model/oracle/oracle.h"

namespace lagrange {
namespace {

const OracleRegistration kFlatten{"flatten", [](const LayerSpec&, int64_t, const std::vector<double>& input,
                                                const std::vector<std::vector<double>>&) { return input; }};

}  // namespace
}  // namespace lagrange

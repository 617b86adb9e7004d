// Each layer's output by its definition, in double: what the tests measure layers and their gradients against.
//
// One file a layer, registered under the layer's name; shares no code with the layers. Thread-safe: pure functions.

#ifndef WORKER_MODEL_ORACLE_ORACLE_H_
#define WORKER_MODEL_ORACLE_ORACLE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "common/registry.h"
#include "proto/job.pb.h"

namespace lagrange {

// input: [examples, input shape], row-major; parameters in the order of the layer's variables; gives [examples, output
// shape].
using OracleForward =
    std::function<std::vector<double>(const LayerSpec& spec, int64_t examples, const std::vector<double>& input,
                                      const std::vector<std::vector<double>>& parameters)>;
using OracleRegistration = Registration<OracleForward>;

}  // namespace lagrange

#endif  // WORKER_MODEL_ORACLE_ORACLE_H_

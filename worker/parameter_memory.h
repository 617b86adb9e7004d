// One buffer of floats for each variable, every one on a 64-byte boundary.
//
// For the worker's parameters and gradients: allocated once, then written and read in place by the ps client and the
// model. Caller synchronizes. Owns the memory. Create gives ResourceExhausted when the memory can't be had,
// InvalidArgument for a shape that isn't one.

#ifndef WORKER_PARAMETER_MEMORY_H_
#define WORKER_PARAMETER_MEMORY_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class ParameterMemory {
 public:
  // Zeros.
  static absl::StatusOr<ParameterMemory> Create(absl::Span<const VariableSpec> variables);

  // In the order of the variables.
  const std::vector<float*>& variables() const { return pointers_; }
  const std::vector<const float*>& const_variables() const { return const_pointers_; }
  // Elements of each.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };

  ParameterMemory() = default;

  std::vector<std::unique_ptr<float, Free>> owned_;
  std::vector<float*> pointers_;
  std::vector<const float*> const_pointers_;
  std::vector<int64_t> counts_;
};

}  // namespace lagrange

#endif  // WORKER_PARAMETER_MEMORY_H_

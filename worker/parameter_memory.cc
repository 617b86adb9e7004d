#include "worker/parameter_memory.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/partition.h"
#include "common/status.h"

namespace lagrange {
namespace {

// A cache line, and the widest vector.
constexpr size_t kAlignmentBytes = 64;

}  // namespace

absl::StatusOr<ParameterMemory> ParameterMemory::Create(absl::Span<const VariableSpec> variables) {
  ParameterMemory memory;
  for (const VariableSpec& variable : variables) {
    ASSIGN_OR_RETURN(const int64_t count, ElementCount(variable));
    const size_t needed = static_cast<size_t>(count) * sizeof(float);
    const size_t bytes = (needed + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
    auto* block = static_cast<float*>(std::aligned_alloc(kAlignmentBytes, bytes));
    if (block == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("variable ", variable.name(), ": cannot allocate ", bytes, " bytes"));
    }
    std::memset(block, 0, bytes);
    memory.owned_.emplace_back(block);
    memory.pointers_.push_back(block);
    memory.const_pointers_.push_back(block);
    memory.counts_.push_back(count);
  }
  return memory;
}

}  // namespace lagrange

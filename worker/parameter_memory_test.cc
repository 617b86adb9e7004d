#include "worker/parameter_memory.h"

#include "gtest/gtest.h"

namespace lagrange {
namespace {

VariableSpec Shaped(std::vector<int64_t> shape) {
  VariableSpec variable;
  variable.set_name("v");
  for (const int64_t dimension : shape) variable.add_shape(dimension);
  return variable;
}

TEST(ParameterMemory, EachVariableIsAlignedZeroAndItsOwn) {
  const auto memory = ParameterMemory::Create({Shaped({3}), Shaped({}), Shaped({5, 7})});
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->counts(), (std::vector<int64_t>{3, 1, 35}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->variables()[i]) % 64, 0u);
    EXPECT_EQ(memory->const_variables()[i], memory->variables()[i]);
    for (int64_t element = 0; element < memory->counts()[i]; ++element) {
      EXPECT_EQ(memory->variables()[i][element], 0);
      memory->variables()[i][element] = 1;
    }
  }
}

TEST(ParameterMemory, ImpossibleShapeIsRefused) {
  EXPECT_EQ(ParameterMemory::Create({Shaped({0})}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParameterMemory::Create({Shaped({INT64_MAX, INT64_MAX})}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lagrange

#include "common/memory.h"

#include <malloc.h>

#include <cstdlib>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

TEST(Malloc, TakesTheSettings) { EXPECT_TRUE(SetMallocForLargeMessages()); }

// What the settings are for: a block under the mmap threshold of 1 GiB stays with malloc when it is freed.
TEST(Malloc, KeepsFreedMemory) {
  SetMallocForLargeMessages();
  constexpr size_t kBlockBytes = size_t{64} << 20;
  volatile char* block = static_cast<char*>(malloc(kBlockBytes));
  ASSERT_NE(block, nullptr);
  block[0] = 1;
  free(const_cast<char*>(block));
  EXPECT_GE(mallinfo2().fordblks, kBlockBytes);
}

}  // namespace
}  // namespace lagrange

#include "ps/core/buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>

namespace lagrange {
namespace {

TEST(BufferRef, FloatsBeginOnACacheLine) {
  for (const int64_t count : {0, 1, 31, 33, 1000003}) {
    const BufferRef buffer = BufferRef::Allocate(count);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer.values().size(), count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.values().data()) % 64, 0);
  }
}

TEST(BufferRef, IsUniqueUntilCopiedAndAgainWhenTheCopyIsGone) {
  BufferRef buffer = BufferRef::Allocate(3);
  EXPECT_TRUE(buffer.Unique());
  {
    BufferRef copy;
    copy = buffer;
    EXPECT_FALSE(buffer.Unique());
    EXPECT_EQ(copy.values().data(), buffer.values().data());
  }
  EXPECT_TRUE(buffer.Unique());
}

TEST(BufferRef, AMoveLeavesOneHolder) {
  BufferRef buffer = BufferRef::Allocate(3);
  const BufferRef moved = std::move(buffer);
  EXPECT_TRUE(moved.Unique());
  // NOLINTNEXTLINE(bugprone-use-after-move): what a move leaves is what this tests.
  EXPECT_FALSE(buffer);
  EXPECT_TRUE(buffer.values().empty());
}

TEST(BufferRef, AssignmentLetsGoOfTheOld) {
  BufferRef old = BufferRef::Allocate(3);
  BufferRef other = old;
  other = BufferRef::Allocate(2);
  EXPECT_TRUE(old.Unique());
  EXPECT_EQ(other.values().size(), 2);
}

TEST(BufferRef, AnImpossibleSizeIsNull) {
  EXPECT_FALSE(BufferRef::Allocate(-1));
  EXPECT_FALSE(BufferRef::Allocate(std::numeric_limits<int64_t>::max()));
}

TEST(BufferPool, WritesASpareAgainOnlyWhenItsReadersHaveLetGo) {
  BufferPool pool(4);
  BufferRef first = pool.Take();
  const float* const address = first.values().data();
  BufferRef reader = first;
  pool.Give(std::move(first));
  BufferRef second = pool.Take();
  EXPECT_NE(second.values().data(), address);
  reader = BufferRef();
  BufferRef third = pool.Take();
  EXPECT_EQ(third.values().data(), address);
  EXPECT_TRUE(third.Unique());
}

TEST(BufferPool, KeepsNoMoreThanItsSpares) {
  BufferPool pool(4);
  std::vector<BufferRef> given;
  for (int i = 0; i < 5; ++i) given.push_back(BufferRef::Allocate(4));
  for (const BufferRef& buffer : given) pool.Give(buffer);
  int kept = 0;
  for (const BufferRef& buffer : given) kept += buffer.Unique() ? 0 : 1;
  EXPECT_EQ(kept, 2);
}

}  // namespace
}  // namespace lagrange

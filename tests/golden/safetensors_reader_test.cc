// A checkpoint's file through the eyes of a reader that shares no code with its writer: python's struct, json, numpy.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/checkpoint_files.h"

namespace lagrange {
namespace {

BufferRef BufferOf(std::initializer_list<float> values) {
  BufferRef buffer = BufferRef::Allocate(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), buffer.MutableValues().begin());
  return buffer;
}

// What the script prints of a file; the test fails when the script does.
std::string ReadByPython(const std::string& path) {
  const std::string command = absl::StrCat("/usr/bin/python3 tests/golden/read_safetensors.py '", path, "' 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char block[4096];
  for (size_t got = 0; (got = fread(block, 1, sizeof(block), pipe)) > 0;) output.append(block, got);
  EXPECT_EQ(pclose(pipe), 0) << output;
  return output;
}

TEST(SafetensorsReader, AnIndependentReaderFindsEveryTensor) {
  ShardSnapshot kernel;
  kernel.variable = "dense_0/kernel";
  kernel.variable_shape = {4, 2};
  kernel.row_begin = 1;
  kernel.row_end = 3;
  kernel.version = 9;
  kernel.parameters = BufferOf({1.0f, -0.5f, 3.0e38f, 1.0e-45f});
  kernel.slot_names = {"momentum"};
  kernel.slots = {BufferOf({0.0f, -0.0f, 0.1f, 2.0f})};
  ShardSnapshot scale;
  scale.variable = "scale";
  scale.row_end = 1;
  scale.version = 8;
  scale.parameters = BufferOf({7.0f});
  scale.slot_names = {"momentum"};
  scale.slots = {BufferOf({8.0f})};
  const auto file = WriteShardsFile(testing::TempDir(), {"ps-00000-of-00001", 1, 1, 1}, {kernel, scale});
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(ReadByPython(JoinPath(testing::TempDir(), file->name())),
            "dense_0/kernel#rows=1:3 F32 [2, 2] 0x1.0000000000000p+0 -0x1.0000000000000p-1 0x1.c363cc0000000p+127 "
            "0x1.0000000000000p-149\n"
            "dense_0/kernel/momentum#rows=1:3 F32 [2, 2] 0x0.0p+0 -0x0.0p+0 0x1.99999a0000000p-4 "
            "0x1.0000000000000p+1\n"
            "scale F32 [] 0x1.c000000000000p+2\n"
            "scale/momentum F32 [] 0x1.0000000000000p+3\n"
            "shard dense_0/kernel 3 9\n"
            "shard scale 1 8\n");
}

}  // namespace
}  // namespace lagrange

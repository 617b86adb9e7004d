#include "proto/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/file_system.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) { return JoinPath(testing::TempDir(), name); }

// A file as a byte string, from its parts.
std::string FileOf(const std::string& json, const std::string& data) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + json + data;
}

TEST(WriteSafetensors, WritesTheVeryBytesOfTheFormat) {
  const std::vector<float> values = {1.0f, -2.0f};
  const std::string path = PathOf("bytes");
  const auto written = WriteSafetensors(path, {{"k", "v"}}, {FloatTensor("a", {1, 2}, values)});
  ASSERT_THAT(written, IsOk());
  std::string json = R"({"__metadata__":{"k":"v"},"a":{"data_offsets":[0,8],"dtype":"F32","shape":[1,2]}})";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::string expected = FileOf(json, std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8));
  EXPECT_THAT(ReadFile(path, 1000), IsOkAndHolds(expected));
  EXPECT_EQ(written->size_bytes, static_cast<int64_t>(expected.size()));
  EXPECT_EQ(written->crc32c, Crc32c(expected));
}

TEST(WriteSafetensors, PutsWideElementsFirstAndNamesInOrder) {
  const std::vector<float> floats = {1.0f};
  const int64_t number = 7;
  const std::string path = PathOf("order");
  const TensorSource bytes{"a", TensorType::kU8, {3}, absl::MakeConstSpan("xyz", 3)};
  const TensorSource integer{"z", TensorType::kI64, {}, {reinterpret_cast<const char*>(&number), 8}};
  ASSERT_THAT(WriteSafetensors(path, {}, {bytes, FloatTensor("c", {1}, floats), FloatTensor("b", {}, floats), integer}),
              IsOk());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_THAT(file, IsOk());
  std::vector<std::string> names;
  for (const TensorEntry& tensor : (*file)->header().tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, ElementsAre("z", "b", "c", "a"));
  EXPECT_EQ((*file)->header().data_begin % 8, 0);
}

TEST(WriteSafetensors, RefusesANameTwice) {
  const std::vector<float> values = {1.0f};
  EXPECT_THAT(WriteSafetensors(PathOf("twice"), {}, {FloatTensor("a", {1}, values), FloatTensor("a", {1}, values)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"a\"")));
  EXPECT_FALSE(FileExists(PathOf("twice")));
}

TEST(WriteSafetensors, RefusesTheNameOfTheMetadata) {
  const std::vector<float> values = {1.0f};
  EXPECT_THAT(WriteSafetensors(PathOf("meta"), {}, {FloatTensor("__metadata__", {1}, values)}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(WriteSafetensors, RefusesBytesThatDontFitTheShape) {
  const std::vector<float> values = {1.0f, 2.0f};
  EXPECT_THAT(WriteSafetensors(PathOf("shape"), {}, {FloatTensor("a", {3}, values)}),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("8 bytes"), HasSubstr("takes 12"))));
}

TEST(WriteSafetensors, RefusesANameThatIsNotUtf8) {
  const std::vector<float> values = {1.0f};
  EXPECT_THAT(WriteSafetensors(PathOf("utf8"), {}, {FloatTensor("\xff", {1}, values)}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

TEST(SafetensorsFile, ReadsBackEveryBitOfAFloat) {
  const std::vector<float> values = {0.0f,
                                     -0.0f,
                                     std::numeric_limits<float>::denorm_min(),
                                     std::numeric_limits<float>::max(),
                                     -std::numeric_limits<float>::infinity(),
                                     std::nanf("0x1234")};
  ASSERT_THAT(WriteSafetensors(PathOf("bits"), {}, {FloatTensor("a", {2, 3}, values)}), IsOk());
  const auto file = SafetensorsFile::Open(PathOf("bits"));
  ASSERT_THAT(file, IsOk());
  const TensorEntry* tensor = (*file)->Find("a");
  ASSERT_NE(tensor, nullptr);
  std::vector<float> read(values.size(), 1.0f);
  ASSERT_THAT((*file)->ReadFloats(*tensor, 0, absl::MakeSpan(read)), IsOk());
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(float)), 0);
}

TEST(SafetensorsFile, ReadsAPartOfATensor) {
  const std::vector<float> first = {9.0f};
  const std::vector<float> values = {1.0f, 2.0f, 3.0f, 4.0f};
  ASSERT_THAT(WriteSafetensors(PathOf("part"), {}, {FloatTensor("a", {1}, first), FloatTensor("b", {4}, values)}),
              IsOk());
  const auto file = SafetensorsFile::Open(PathOf("part"));
  ASSERT_THAT(file, IsOk());
  std::vector<float> read(2);
  ASSERT_THAT((*file)->ReadFloats(*(*file)->Find("b"), 1, absl::MakeSpan(read)), IsOk());
  EXPECT_THAT(read, ElementsAre(2.0f, 3.0f));
  EXPECT_THAT((*file)->ReadFloats(*(*file)->Find("b"), 3, absl::MakeSpan(read)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SafetensorsFile, HoldsNoTensorAtAll) {
  ASSERT_THAT(WriteSafetensors(PathOf("none"), {{"k", "v"}}, {}), IsOk());
  const auto file = SafetensorsFile::Open(PathOf("none"));
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE((*file)->header().tensors.empty());
  EXPECT_EQ((*file)->header().metadata.at("k"), "v");
  EXPECT_EQ((*file)->Find("a"), nullptr);
}

TEST(SafetensorsFile, HoldsTensorsWithoutElements) {
  const std::vector<float> values = {1.0f};
  ASSERT_THAT(WriteSafetensors(PathOf("empty"), {}, {FloatTensor("a", {0, 4}, {}), FloatTensor("b", {1}, values)}),
              IsOk());
  EXPECT_THAT(SafetensorsFile::Open(PathOf("empty")), IsOk());
}

// What is wrong with a file, and what the message must say besides the path.
struct BadFile {
  const char* name;
  std::string contents;
  absl::StatusCode code;
  const char* message;
};

constexpr char kGoodTensor[] = R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})";

std::vector<BadFile> BadFiles() {
  const auto tensor = [](const std::string& json) { return FileOf(absl::StrCat(R"({"a":)", json, "}"), "1234"); };
  const absl::StatusCode invalid = absl::StatusCode::kInvalidArgument;
  std::string long_header(8, '\xff');
  return {
      {"too_short", "1234567", invalid, "7 bytes"},
      {"header_longer_than_file", FileOf("{}", "").substr(0, 9), invalid, "header of 2 bytes in a file of 9"},
      {"header_length_of_2_to_64", long_header + "{}", invalid, "header of 18446744073709551615 bytes"},
      {"no_json", FileOf("{\"a\":", ""), invalid, "JSON"},
      {"a_list", FileOf("[]", ""), invalid, "JSON"},
      {"nested", FileOf(std::string(100000, '['), ""), invalid, "deep"},
      {"key_twice", FileOf(absl::StrCat(R"({"a":)", kGoodTensor, R"(,"a":)", kGoodTensor, "}"), "1234"), invalid,
       "\"a\" twice"},
      {"unknown_type", tensor(R"({"dtype":"Q4","shape":[1],"data_offsets":[0,4]})"), invalid, "\"Q4\""},
      {"type_is_number", tensor(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})"), invalid, "dtype"},
      {"no_shape", tensor(R"({"dtype":"F32","data_offsets":[0,4]})"), invalid, "shape"},
      {"negative_shape", tensor(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), invalid, "shape"},
      {"float_shape", tensor(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), invalid, "shape"},
      {"shape_wraps_to_4_bytes", tensor(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})"),
       invalid, "out of range"},
      {"offsets_too_large", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]})"), invalid,
       "data_offsets"},
      {"size_unlike_shape", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), invalid, "takes 8 bytes"},
      {"one_offset", tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), invalid, "data_offsets"},
      {"gap", FileOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678"), invalid, "expected 0"},
      {"overlap", FileOf(absl::StrCat(R"({"a":)", kGoodTensor, R"(,"b":)", kGoodTensor, "}"), "1234"), invalid,
       "expected 4"},
      {"cut_short", FileOf(absl::StrCat(R"({"a":)", kGoodTensor, "}"), "123"), absl::StatusCode::kDataLoss,
       "describes 4 bytes of data, but the file has 3"},
      {"trailing_bytes", FileOf(absl::StrCat(R"({"a":)", kGoodTensor, "}"), "12345"), absl::StatusCode::kDataLoss,
       "the file has 5"},
      {"metadata_of_numbers", FileOf(R"({"__metadata__":{"k":1}})", ""), invalid, "\"k\" is not a string"},
      {"metadata_is_text", FileOf(R"({"__metadata__":"k"})", ""), invalid, "__metadata__"},
  };
}

TEST(SafetensorsFile, RefusesWhatIsNoSuchFileByName) {
  for (const BadFile& bad : BadFiles()) {
    SCOPED_TRACE(bad.name);
    const std::string path = PathOf(absl::StrCat("bad_", bad.name));
    ASSERT_THAT(WriteFileAtomically(path, bad.contents), IsOk());
    EXPECT_THAT(SafetensorsFile::Open(path), StatusIs(bad.code, AllOf(HasSubstr(path), HasSubstr(bad.message))));
  }
}

TEST(SafetensorsFile, ReadsAHeaderInAnotherOrderAndPadding) {
  const std::string json =
      R"( {"b":{"shape":[1],"dtype":"F32","data_offsets":[0,4]},"a":{"data_offsets":[4,8],"dtype":"F32","shape":[]}}   )";
  ASSERT_THAT(WriteFileAtomically(PathOf("other"), FileOf(json, "12345678")), IsOk());
  const auto file = SafetensorsFile::Open(PathOf("other"));
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->Find("a")->begin, 4);
  EXPECT_THAT((*file)->Find("b")->shape, ElementsAre(1));
}

TEST(SafetensorsFile, SaysThatThereIsNoFile) {
  EXPECT_THAT(SafetensorsFile::Open(PathOf("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(PathOf("absent"))));
}

}  // namespace
}  // namespace lagrange

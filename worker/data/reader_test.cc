// What every data format must do, run for each that registers itself, on its example in tests/testdata/reader.

#include "worker/data/reader.h"

#include <dirent.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;

constexpr char kExamples[] = "tests/testdata/reader";

struct Example {
  std::map<std::string, std::string> files;
  std::string spec;
  DatasetExpectations expectations;
  std::vector<int32_t> labels;
  std::vector<std::vector<float>> inputs;
};

Example ReadExample(const std::string& name) {
  Example example;
  std::ifstream file(absl::StrCat(kExamples, "/", name, ".txt"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key, word;
    words >> key;
    if (key == "file") {
      words >> key;
      std::string hex;
      while (words >> word) hex += word;
      example.files[key] = absl::HexStringToBytes(hex);
    } else if (key == "spec") {
      std::getline(words, example.spec);
    } else if (key == "input_shape") {
      for (int32_t size; words >> size;) example.expectations.example_shape.push_back(size);
    } else if (key == "class_count") {
      words >> example.expectations.class_count;
    } else if (key == "record") {
      int32_t label = -1;
      words >> label;
      example.labels.push_back(label);
      example.inputs.emplace_back();
      for (float value; words >> value;) example.inputs.back().push_back(value);
    }
  }
  return example;
}

// Writes the example's files into a folder of the test's and opens them.
class ReaderConformance : public testing::TestWithParam<std::string> {
 protected:
  ReaderConformance() : example_(ReadExample(GetParam())) {
    for (const auto& [name, bytes] : example_.files) Write(name, bytes);
  }

  std::string Path(const std::string& name) const {
    return absl::StrCat(testing::TempDir(), "/conformance_", GetParam(), "_", name);
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open() const { return Open(example_.expectations); }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const DatasetExpectations& expectations) const {
    DatasetSpec spec;
    const std::string text = absl::StrReplaceAll(example_.spec, {{"DIR/", Path("")}});
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
    return OpenDataset(spec, expectations);
  }
  size_t elements() const { return example_.inputs[0].size(); }

  const Example example_;
};

TEST_P(ReaderConformance, ReadsTheKnownValues) {
  const auto dataset = Open();
  ASSERT_THAT(dataset, IsOk());
  ASSERT_GE(example_.labels.size(), 2u);
  ASSERT_EQ((*dataset)->record_count(), static_cast<int64_t>(example_.labels.size()));
  EXPECT_EQ((*dataset)->example_shape(), example_.expectations.example_shape);
  for (int64_t i = 0; i < (*dataset)->record_count(); ++i) {
    std::vector<float> inputs(elements());
    int32_t label = -1;
    ASSERT_THAT((*dataset)->Read({i}, absl::MakeSpan(inputs), absl::MakeSpan(&label, 1)), IsOk());
    EXPECT_EQ(inputs, example_.inputs[i]);
    EXPECT_EQ(label, example_.labels[i]);
  }
}

TEST_P(ReaderConformance, RecordsComeInTheOrderAsked) {
  const auto dataset = Open();
  ASSERT_THAT(dataset, IsOk());
  std::vector<float> inputs(3 * elements());
  std::vector<int32_t> labels(3);
  ASSERT_THAT((*dataset)->Read({1, 0, 1}, absl::MakeSpan(inputs), absl::MakeSpan(labels)), IsOk());
  EXPECT_EQ(labels, (std::vector<int32_t>{example_.labels[1], example_.labels[0], example_.labels[1]}));
  std::vector<float> want = example_.inputs[1];
  want.insert(want.end(), example_.inputs[0].begin(), example_.inputs[0].end());
  want.insert(want.end(), example_.inputs[1].begin(), example_.inputs[1].end());
  EXPECT_EQ(inputs, want);
}

TEST_P(ReaderConformance, RecordsOutsideTheDataAreRefused) {
  const auto dataset = Open();
  ASSERT_THAT(dataset, IsOk());
  std::vector<float> inputs(elements());
  int32_t label = 0;
  for (const int64_t record : {int64_t{-1}, (*dataset)->record_count(), int64_t{1} << 62}) {
    EXPECT_THAT((*dataset)->Read({record}, absl::MakeSpan(inputs), absl::MakeSpan(&label, 1)),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(absl::StrCat(record))));
  }
}

TEST_P(ReaderConformance, RoomOfAnotherSizeIsRefused) {
  const auto dataset = Open();
  ASSERT_THAT(dataset, IsOk());
  std::vector<float> inputs(elements() + 1);
  int32_t label = 0;
  EXPECT_THAT((*dataset)->Read({0}, absl::MakeSpan(inputs), absl::MakeSpan(&label, 1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(ReaderConformance, AFileCutShortAnywhereIsRefusedByName) {
  for (const auto& [name, bytes] : example_.files) {
    for (size_t kept = 0; kept < bytes.size(); ++kept) {
      Write(name, bytes.substr(0, kept));
      EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Path(name)))) << kept << " bytes";
    }
    Write(name, bytes);
  }
}

TEST_P(ReaderConformance, AMissingFileIsNotFoundByName) {
  for (const auto& [name, bytes] : example_.files) {
    std::remove(Path(name).c_str());
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path(name))));
    Write(name, bytes);
  }
}

TEST_P(ReaderConformance, ADirectoryIsRefusedByName) {
  for (const auto& [name, bytes] : example_.files) {
    std::remove(Path(name).c_str());
    ASSERT_EQ(mkdir(Path(name).c_str(), 0755), 0);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(Path(name))));
    ASSERT_EQ(std::remove(Path(name).c_str()), 0);
    Write(name, bytes);
  }
}

TEST_P(ReaderConformance, AnotherShapeThanTheModelsIsRefused) {
  DatasetExpectations expectations = example_.expectations;
  ++expectations.example_shape.back();
  EXPECT_THAT(Open(expectations), StatusIs(absl::StatusCode::kInvalidArgument));
  expectations = example_.expectations;
  expectations.example_shape.push_back(1);
  EXPECT_THAT(Open(expectations), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_P(ReaderConformance, ALabelThatIsNoClassIsRefused) {
  DatasetExpectations expectations = example_.expectations;
  expectations.class_count = 1;
  EXPECT_THAT(Open(expectations), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("record 0")));
}

INSTANTIATE_TEST_SUITE_P(All, ReaderConformance, testing::ValuesIn(Registry<DatasetFactory>::Names()),
                         [](const auto& info) { return info.param; });

std::set<std::string> ExampleNames() {
  std::set<std::string> names;
  DIR* folder = opendir(kExamples);
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (absl::EndsWith(name, ".txt")) names.emplace(name.substr(0, name.size() - 4));
  }
  closedir(folder);
  return names;
}

TEST(Readers, RegisteredNamesAreTheExamplesAndTheSpecsFields) {
  const std::vector<std::string> registered = Registry<DatasetFactory>::Names();
  const std::set<std::string> names(registered.begin(), registered.end());
  EXPECT_EQ(names, ExampleNames());
  std::set<std::string> fields;
  const auto* oneof = DatasetSpec::descriptor()->FindOneofByName("format");
  for (int i = 0; i < oneof->field_count(); ++i) fields.insert(oneof->field(i)->name());
  EXPECT_EQ(names, fields);
}

TEST(Readers, ASpecWithoutFormatIsRefusedWithTheKnownNames) {
  EXPECT_THAT(OpenDataset(DatasetSpec(), {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("idx")));
}

}  // namespace
}  // namespace lagrange

#include <zlib.h>

#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/reader.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::string TestPath(const std::string& name) { return absl::StrCat(testing::TempDir(), "/idx_", name); }

std::string Write(const std::string& name, const std::string& bytes) {
  const std::string path = TestPath(name);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

std::string Hex(absl::string_view hex) { return absl::HexStringToBytes(hex); }

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(&out[0]);
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

DatasetSpec Spec(const std::string& images, const std::string& labels) {
  DatasetSpec spec;
  spec.mutable_idx()->set_images_path(images);
  spec.mutable_idx()->set_labels_path(labels);
  spec.mutable_idx()->set_scale(1);
  spec.mutable_idx()->set_offset(0);
  return spec;
}

const DatasetExpectations kTwoByTwo{{2, 2}, 10};
const char kTwoLabels[] = "00000801000000020102";
const char kTwoImages[] = "00000803000000020000000200000002";

// The two files, as the model of 2 x 2 inputs and 10 classes wants them.
absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& images, const std::string& labels) {
  return OpenDataset(Spec(Write("images", images), Write("labels", labels)), kTwoByTwo);
}

std::vector<float> InputsOf(const Dataset& dataset, int64_t record, size_t elements) {
  std::vector<float> inputs(elements);
  int32_t label;
  EXPECT_THAT(dataset.Read({record}, absl::MakeSpan(inputs), absl::MakeSpan(&label, 1)), IsOk());
  return inputs;
}

TEST(Idx, EightBytesAreTwoImagesOfTwoByTwo) {
  const auto dataset = Open(Hex(kTwoImages) + Hex("0102030405060708"), Hex(kTwoLabels));
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ((*dataset)->record_count(), 2);
  EXPECT_EQ(InputsOf(**dataset, 1, 4), (std::vector<float>{5, 6, 7, 8}));
}

TEST(Idx, AByteTooFewIsRefusedWithBothCounts) {
  EXPECT_THAT(Open(Hex(kTwoImages) + std::string(7, 'x'), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr(TestPath("images")), HasSubstr("want 24 bytes, have 23"))));
}

TEST(Idx, AByteTooManyIsRefusedAsTrailing) {
  EXPECT_THAT(Open(Hex(kTwoImages) + std::string(9, 'x'), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr("want 24 bytes, have 25"), HasSubstr("trailing byte"))));
}

TEST(Idx, AProductThatWrapsIn32BitsIsCountedIn64) {
  EXPECT_THAT(Open(Hex("00000803000100000001000000000001"), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("want 4294967312 bytes, have 16")));
}

TEST(Idx, AProductThatWrapsIn64BitsIsRefused) {
  EXPECT_THAT(Open(Hex("00000803800000008000000000000004"), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr("overflow"), HasSubstr("[2147483648, 2147483648, 4]"))));
}

TEST(Idx, AGzippedClaimOfMuchMoreThanThereIsIsRefused) {
  EXPECT_THAT(Open(Gzip(Hex("00000803000100000001000000000001")), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("want 4294967312 bytes, have 16")));
}

TEST(Idx, UnequalCountsAreRefusedWithBoth) {
  EXPECT_THAT(
      Open(Hex("00000803000000030000000200000002") + std::string(12, 'x'), Hex(kTwoLabels)),
      StatusIs(kInvalid, AllOf(HasSubstr(TestPath("images") + " has 3"), HasSubstr(TestPath("labels") + " has 2"))));
}

TEST(Idx, LabelsGivenAsImagesAreRefused) {
  EXPECT_THAT(Open(Hex(kTwoLabels), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr(TestPath("images")), HasSubstr("expected the magic number 0x00000803"),
                                       HasSubstr("got 0x00000801"))));
}

TEST(Idx, ImagesGivenAsLabelsAreRefused) {
  const std::string images = Hex(kTwoImages) + std::string(8, 'x');
  EXPECT_THAT(Open(images, images), StatusIs(kInvalid, AllOf(HasSubstr(TestPath("labels")), HasSubstr("0x00000801"))));
}

TEST(Idx, FloatElementsAreRefused) {
  EXPECT_THAT(Open(Hex("00000d03000000020000000200000002") + std::string(32, 'x'), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("element type 0x0d")));
}

TEST(Idx, OtherFilesAreRefused) {
  EXPECT_THAT(Open("<html>not found</html>", Hex(kTwoLabels)), StatusIs(kInvalid, HasSubstr("not IDX")));
}

TEST(Idx, AnEmptyFileIsRefused) {
  EXPECT_THAT(Open("", Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr(TestPath("images")), HasSubstr("want 16 bytes, have 0"))));
}

TEST(Idx, NoImagesAreRefused) {
  EXPECT_THAT(Open(Hex("00000803000000000000000200000002"), Hex("0000080100000000")),
              StatusIs(kInvalid, HasSubstr("expected at least 1 image, got 0")));
}

TEST(Idx, AZeroBesideHugeDimensionsIsAShapeMismatch) {
  EXPECT_THAT(Open(Hex("00000803ffffffffffffffff00000000"), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("got [4294967295, 0]")));
}

TEST(Idx, AnotherShapeIsRefusedWithBoth) {
  EXPECT_THAT(Open(Hex("00000803000000020000000100000004") + std::string(8, 'x'), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr("expected images of [2, 2]"), HasSubstr("got [1, 4]"))));
}

TEST(Idx, ALabelOutsideTheClassesNamesFileAndRecord) {
  EXPECT_THAT(Open(Hex(kTwoImages) + std::string(8, 'x'), Hex("0000080100000002010a")),
              StatusIs(kInvalid,
                       AllOf(HasSubstr(TestPath("labels")), HasSubstr("record 1"), HasSubstr("from 0 to 9, got 10"))));
}

TEST(Idx, GzipIsToldByContent) {
  const auto dataset = Open(Gzip(Hex(kTwoImages) + Hex("0102030405060708")), Gzip(Hex(kTwoLabels)));
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ(InputsOf(**dataset, 0, 4), (std::vector<float>{1, 2, 3, 4}));
}

TEST(Idx, GzipCutShortAnywhereIsRefused) {
  const std::string gzip = Gzip(Hex(kTwoImages) + Hex("0102030405060708"));
  for (size_t kept = 2; kept < gzip.size(); ++kept) {
    EXPECT_THAT(Open(gzip.substr(0, kept), Hex(kTwoLabels)),
                StatusIs(kInvalid, AllOf(HasSubstr(TestPath("images")), HasSubstr("gzip is cut short"))))
        << kept << " bytes";
  }
}

TEST(Idx, BytesAfterTheGzipAreRefused) {
  const std::string gzip = Gzip(Hex(kTwoImages) + Hex("0102030405060708"));
  EXPECT_THAT(
      Open(gzip + "abc", Hex(kTwoLabels)),
      StatusIs(kInvalid, HasSubstr(absl::StrCat("gzip ends at byte ", gzip.size(), ", but the file has 3 more"))));
}

TEST(Idx, ASecondGzipMemberIsRefused) {
  EXPECT_THAT(Open(Gzip(Hex(kTwoImages)) + Gzip(Hex("0102030405060708")), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("gzip ends at byte")));
}

TEST(Idx, AFlippedByteInGzipIsRefused) {
  std::string gzip = Gzip(Hex(kTwoImages) + Hex("0102030405060708"));
  // In the checksum, which begins 8 bytes before the end.
  gzip[gzip.size() - 8] ^= 1;
  EXPECT_THAT(Open(gzip, Hex(kTwoLabels)), StatusIs(kInvalid, HasSubstr("gzip is damaged")));
}

TEST(Idx, GzipOfTooFewOrTooManyBytesIsRefused) {
  EXPECT_THAT(Open(Gzip(Hex(kTwoImages) + std::string(7, 'x')), Hex(kTwoLabels)),
              StatusIs(kInvalid, HasSubstr("want 24 bytes, have 23")));
  EXPECT_THAT(Open(Gzip(Hex(kTwoImages) + std::string(9, 'x')), Hex(kTwoLabels)),
              StatusIs(kInvalid, AllOf(HasSubstr("want 24 bytes, have 25"), HasSubstr("trailing"))));
}

// More than the first allocation, so that memory grows on the way.
TEST(Idx, LargeGzipIsReadWhole) {
  std::string images = Hex("00000803000000020000040000000400");
  for (int i = 0; i < 2 * 1024 * 1024; ++i) images += static_cast<char>(i % 251);
  const auto dataset =
      OpenDataset(Spec(Write("images", Gzip(images)), Write("labels", Hex(kTwoLabels))), {{1024, 1024}, 10});
  ASSERT_THAT(dataset, IsOk());
  const std::vector<float> inputs = InputsOf(**dataset, 1, 1024 * 1024);
  for (int i = 0; i < 1024 * 1024; ++i) ASSERT_EQ(inputs[i], (i + 1024 * 1024) % 251);
}

TEST(Idx, InputsAreScaledAndShifted) {
  DatasetSpec spec = Spec(Write("images", Hex(kTwoImages) + Hex("00010203040506ff")), Write("labels", Hex(kTwoLabels)));
  spec.mutable_idx()->set_scale(1.0f / 255);
  spec.mutable_idx()->set_offset(-0.5f);
  const auto dataset = OpenDataset(spec, kTwoByTwo);
  ASSERT_THAT(dataset, IsOk());
  EXPECT_EQ(InputsOf(**dataset, 0, 4)[0], -0.5f);
  EXPECT_FLOAT_EQ(InputsOf(**dataset, 1, 4)[3], 0.5f);
}

TEST(Idx, AScaleThatIsNotANumberIsRefused) {
  DatasetSpec spec = Spec("unread", "unread");
  spec.mutable_idx()->set_scale(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(OpenDataset(spec, kTwoByTwo), StatusIs(kInvalid, HasSubstr("idx.scale")));
}

// Debian's dataset-fashion-mnist; the numbers were taken from its files with gzip and od.
class FashionMnist : public testing::Test {
 protected:
  static constexpr char kFolder[] = "/usr/share/datasets/fashion-mnist/";

  absl::StatusOr<std::unique_ptr<Dataset>> OpenPart(const std::string& part) {
    return OpenDataset(Spec(absl::StrCat(kFolder, part, "-images-idx3-ubyte.gz"),
                            absl::StrCat(kFolder, part, "-labels-idx1-ubyte.gz")),
                       {{28, 28}, 10});
  }
  void SetUp() override {
    if (!std::ifstream(absl::StrCat(kFolder, "t10k-labels-idx1-ubyte.gz")).good()) {
      GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
    }
  }
};

TEST_F(FashionMnist, TestPartHasTheKnownValues) {
  const auto dataset = OpenPart("t10k");
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ((*dataset)->record_count(), 10000);
  std::vector<int64_t> records(10000);
  std::iota(records.begin(), records.end(), 0);
  std::vector<float> inputs(10000 * 784);
  std::vector<int32_t> labels(10000);
  ASSERT_THAT((*dataset)->Read(records, absl::MakeSpan(inputs), absl::MakeSpan(labels)), IsOk());
  EXPECT_EQ(std::vector<int32_t>(labels.begin(), labels.begin() + 8), (std::vector<int32_t>{9, 2, 1, 1, 6, 1, 4, 6}));
  EXPECT_EQ(std::count(labels.begin(), labels.end(), 7), 1000);
  double sum = 0;
  for (const float value : inputs) sum += value;
  EXPECT_EQ(sum, 573469082);
}

TEST_F(FashionMnist, TrainingPartHasTheKnownValues) {
  const auto dataset = OpenPart("train");
  ASSERT_THAT(dataset, IsOk());
  ASSERT_EQ((*dataset)->record_count(), 60000);
  std::vector<float> inputs(2 * 784);
  std::vector<int32_t> labels(2);
  ASSERT_THAT((*dataset)->Read({0, 59999}, absl::MakeSpan(inputs), absl::MakeSpan(labels)), IsOk());
  EXPECT_EQ(labels, (std::vector<int32_t>{9, 5}));
  EXPECT_EQ(std::accumulate(inputs.begin(), inputs.begin() + 784, 0.0), 76247);
  EXPECT_EQ(std::accumulate(inputs.begin() + 784, inputs.end(), 0.0), 16684);
}

}  // namespace
}  // namespace lagrange

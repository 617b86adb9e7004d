// Bad job files, each a good one with one place spoilt, and the message that each gets.

#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/job_config.h"
#include "common/job_field_ranges.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::testing::StrEq;

constexpr char kGoodJob[] = R"(name: "good"
epochs: 3
batch_size: 64
model {
  input_shape: [28, 28]
  class_count: 10
  layers { flatten {} }
  layers {
    name: "hidden"
    dense { units: 16 bias_initializer { uniform { minimum: -1 maximum: 1 } } }
  }
  layers { dense { units: 10 } }
}
data {
  train { idx { images_path: "i" labels_path: "l" } }
  test { idx { images_path: "ti" labels_path: "tl" } }
}
optimizer { adam { learning_rate: 0.5 beta1: 0.25 } }
consistency { ssp { staleness: 2 } }
cluster { ps_count: 2 worker_lease { seconds: 5 } }
)";

struct BadJob {
  const char* name;
  // This once in the good job...
  const char* good;
  // ... becomes this...
  const char* bad;
  // ... and is answered so.
  const char* message;
};

void PrintTo(const BadJob& job, std::ostream* os) { *os << job.name; }

class BadJobFile : public testing::TestWithParam<BadJob> {};

TEST_P(BadJobFile, IsRefusedWithPlaceAndReason) {
  std::string text = kGoodJob;
  const std::string good = GetParam().good;
  const size_t at = text.find(good);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(text.find(good, at + 1), std::string::npos);
  text.replace(at, good.size(), GetParam().bad);
  EXPECT_THAT(ParseJob("job", text), StatusIs(absl::StatusCode::kInvalidArgument, StrEq(GetParam().message)));
}

std::string NameOf(const testing::TestParamInfo<BadJob>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Text, BadJobFile,
    testing::Values(
        BadJob{"UnknownField", "learning_rate: 0.5", "learning_rat: 0.5",
               "job:18:20: optimizer.adam.learning_rat: unknown field \"learning_rat\" in AdamOptimizer; did you mean "
               "\"learning_rate\"?"},
        BadJob{"UnknownTopField", "epochs: 3", "epoch: 3",
               "job:2:1: epoch: unknown field \"epoch\" in JobSpec; did you mean \"epochs\"?"},
        BadJob{"UnknownOptimizer", "adam {", "adma {",
               "job:18:13: optimizer.adma: unknown field \"adma\" in OptimizerSpec; did you mean \"adam\"?"},
        BadJob{
            "UnlikeAnyOptimizer", "adam {", "shampoo {",
            "job:18:13: optimizer.shampoo: unknown field \"shampoo\" in OptimizerSpec; known are sgd, momentum, adam"},
        BadJob{"UnknownLayer", "layers { flatten {} }", "layers { flaten {} }",
               "job:7:12: model.layers[0].flaten: unknown field \"flaten\" in LayerSpec; did you mean \"flatten\"?"},
        BadJob{"UnknownConsistency", "ssp {", "spp {",
               "job:19:15: consistency.spp: unknown field \"spp\" in ConsistencySpec; did you mean \"ssp\"?"},
        BadJob{"UnknownInLaterLayer", "dense { units: 10 }", "dense { unit: 10 }",
               "job:12:20: model.layers[2].dense.unit: unknown field \"unit\" in DenseLayer; did you mean \"units\"?"},
        BadJob{"TextForANumber", "batch_size: 64", "batch_size: \"abc\"",
               "job:3:13: batch_size: expected an integer from 1 to 1048576, got \"abc\""},
        BadJob{"FractionForAnInteger", "epochs: 3", "epochs: 1.5",
               "job:2:9: epochs: expected an integer from 1 to 2147483647, got 1.5"},
        BadJob{"MoreEpochsThanInt32", "epochs: 3", "epochs: 2147483648",
               "job:2:9: epochs: expected an integer from 1 to 2147483647, got 2147483648"},
        BadJob{"MoreEpochsThanInt64", "epochs: 3", "epochs: 99999999999999999999999",
               "job:2:9: epochs: expected an integer from 1 to 2147483647, got 99999999999999999999999"},
        BadJob{"NumberInAList", "[28, 28]", "[28, \"x\"]",
               "job:5:21: model.input_shape[1]: expected an integer from 1 to 268435456, got \"x\""},
        BadJob{"NumberForText", "name: \"good\"", "name: 5", "job:1:7: name: expected a string in quotes, got 5"},
        BadJob{"WordForABool", "dense { units: 10 }", "dense { units: 10 use_bias: maybe }",
               "job:12:40: model.layers[2].dense.use_bias: expected true or false, got maybe"},
        BadJob{"TwoForABool", "epochs: 3", "epochs: 3 prefetch: 2",
               "job:2:21: prefetch: expected true or false, got 2"},
        BadJob{"TextForAFloat", "learning_rate: 0.5", "learning_rate: \"x\"",
               "job:18:35: optimizer.adam.learning_rate: expected a finite number above 0, got \"x\""},
        BadJob{"NumberForAMessage", "ssp { staleness: 2 }", "ssp: 2",
               "job:19:20: consistency.ssp: expected fields in { }, got 2"},
        BadJob{"NegativeSeed", "epochs: 3", "epochs: 3 seed: -1",
               "job:2:17: seed: expected an integer from 0 to 18446744073709551615, got a negative number"},
        BadJob{"QuotedBool", "epochs: 3", "epochs: 3 prefetch: \"yes\"",
               "job:2:21: prefetch: expected true or false, got \"yes\""},
        BadJob{"ValueMissing", "learning_rate: 0.5", "learning_rate:",
               "job:18:35: optimizer.adam.learning_rate: expected a finite number above 0, got beta1"},
        BadJob{"NumberForAName", "epochs: 3", "3", "job:2:1: expected identifier, got: 3"},
        BadJob{"NumberInAMessage", "layers { flatten {} }", "layers { 7 }",
               "job:7:12: model.layers[0]: expected identifier, got: 7"},
        BadJob{"UnknownInAListOfMessages", "layers { dense { units: 10 } }",
               "layers: [{ relu {} }, { dens { units: 10 } }]",
               "job:12:27: model.layers[3].dens: unknown field \"dens\" in LayerSpec; did you mean \"dense\"?"},
        BadJob{"TextNotClosed", "\"hidden\"", "\"hidden",
               "job:9:18: model.layers[1]: string literals cannot cross line boundaries"},
        BadJob{"FieldTwice", "epochs: 3", "epochs: 3 epochs: 4",
               "job:2:11: epochs: non-repeated field \"epochs\" is specified multiple times"},
        BadJob{
            "TwoOptimizers", "optimizer {", "optimizer { sgd {} ",
            "job:18:21: optimizer.adam: field \"adam\" is specified along with field \"sgd\", another member of oneof "
            "\"kind\""},
        BadJob{"BraceMissing", "staleness: 2 } }", "staleness: 2 }",
               "job:20:1: consistency.cluster: unknown field \"cluster\" in ConsistencySpec; known are asp, ssp, bsp"},
        BadJob{"StrayBrace", "epochs: 3", "epochs: 3 }", "job:2:11: expected identifier, got: }"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Ranges, BadJobFile,
    testing::Values(
        BadJob{"NameMissing", "name: \"good\"", "", "job: name: expected 1 to 63 characters of [a-z0-9_-], got \"\""},
        BadJob{"NameWithSlash", "name: \"good\"", "name: \"../x\"",
               "job:1:1: name: expected 1 to 63 characters of [a-z0-9_-], got \"../x\""},
        BadJob{"NoEpochs", "epochs: 3", "", "job: epochs: expected an integer from 1 to 2147483647, got 0 or nothing"},
        BadJob{"NegativeEpochs", "epochs: 3", "epochs: -2",
               "job:2:1: epochs: expected an integer from 1 to 2147483647, got -2"},
        BadJob{"EmptyBatches", "batch_size: 64", "batch_size: 0",
               "job:3:1: batch_size: expected an integer from 1 to 1048576, got 0 or nothing"},
        BadJob{"NoBatchSize", "batch_size: 64", "",
               "job: batch_size: expected an integer from 1 to 1048576, got 0 or nothing"},
        BadJob{"HugeBatches", "batch_size: 64", "batch_size: 1048577",
               "job:3:1: batch_size: expected an integer from 1 to 1048576, got 1048577"},
        BadJob{"NegativeBadPushes", "epochs: 3", "epochs: 3 max_bad_pushes: -1",
               "job:2:11: max_bad_pushes: expected an integer from 0 to 2147483647, got -1"},
        BadJob{"EmptyDimension", "[28, 28]", "[28, 0]",
               "job:5:3: model.input_shape[1]: expected an integer from 1 to 268435456, got 0"},
        BadJob{"NoShape", "input_shape: [28, 28]", "",
               "job:4:1: model.input_shape: expected the shape of one example, such as 28, 28; got nothing"},
        BadJob{"HugeShape", "[28, 28]", "[268435456, 2]",
               "job:5:3: model.input_shape: expected a product of at most 268435456"},
        BadJob{"OneClass", "class_count: 10", "class_count: 1",
               "job:6:3: model.class_count: expected an integer from 2 to 1048576, got 1"},
        BadJob{"LayerWithoutKind", "layers { flatten {} }", "layers { name: \"x\" }",
               "job:7:3: model.layers[0]: expected one of flatten, dense, relu, got nothing"},
        BadJob{"LayerNameTwice", "layers { flatten {} }", "layers { name: \"hidden\" flatten {} }",
               "job:9:5: model.layers[1].name: two layers have the name \"hidden\""},
        BadJob{"LayerNameOfTheDefault", "layers { flatten {} }", "layers { name: \"dense_1\" flatten {} }",
               "job:12:3: model.layers[2].name: two layers have the name \"dense_1\""},
        BadJob{"LayerNameWithSlash", "name: \"hidden\"", "name: \"a/b\"",
               "job:9:5: model.layers[1].name: expected 1 to 63 characters of [a-z0-9_], got \"a/b\""},
        BadJob{"NoUnits", "dense { units: 10 }", "dense {}",
               "job:12:12: model.layers[2].dense.units: expected an integer from 1 to 1048576, got 0 or nothing"},
        BadJob{"UniformUpsideDown", "maximum: 1 ", "maximum: -2 ",
               "job:10:64: model.layers[1].dense.bias_initializer.uniform.maximum: expected more than the minimum -1, "
               "got -2"},
        BadJob{"NegativeDeviation", "uniform { minimum: -1 maximum: 1 }", "normal { stddev: -1 }",
               "job:10:51: model.layers[1].dense.bias_initializer.normal.stddev: expected a finite number of at least "
               "0, got -1"},
        BadJob{"InfiniteConstant", "uniform { minimum: -1 maximum: 1 }", "constant { value: inf }",
               "job:10:53: model.layers[1].dense.bias_initializer.constant.value: expected a finite number, got inf"},
        BadJob{"NoTrainingData", "train { idx { images_path: \"i\" labels_path: \"l\" } }", "",
               "job:14:1: data.train: required, but not given"},
        BadJob{"NoFormat", "idx { images_path: \"i\" labels_path: \"l\" }", "",
               "job:15:3: data.train: expected idx, got nothing"},
        BadJob{"NoLabels", " labels_path: \"tl\"", "", "job:16:10: data.test.idx.labels_path: required, but not given"},
        BadJob{"PathNotUtf8", "\"ti\"", "\"\\xff\"", "job:16:16: data.test.idx.images_path: expected UTF-8"},
        BadJob{"PathWithNul", "\"ti\"", "\"a\\0b\"",
               "job:16:16: data.test.idx.images_path: expected no control characters"},
        BadJob{"NegativeLease", "data {", "data { examples_per_lease: -1",
               "job:14:8: data.examples_per_lease: expected an integer from 0 to 2147483647, got -1"}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    MoreRanges, BadJobFile,
    testing::Values(
        BadJob{"NoOptimizer", "optimizer { adam { learning_rate: 0.5 beta1: 0.25 } }", "",
               "job: optimizer: expected one of sgd, momentum, adam, got nothing"},
        BadJob{"EmptyOptimizer", "adam { learning_rate: 0.5 beta1: 0.25 }", "",
               "job:18:1: optimizer: expected one of sgd, momentum, adam, got nothing"},
        BadJob{"NegativeRate", "learning_rate: 0.5", "learning_rate: -1",
               "job:18:20: optimizer.adam.learning_rate: expected a finite number above 0, got -1"},
        BadJob{"RateNotANumber", "learning_rate: 0.5", "learning_rate: nan",
               "job:18:20: optimizer.adam.learning_rate: expected a finite number above 0, got nan"},
        BadJob{"RateTooLargeForAFloat", "learning_rate: 0.5", "learning_rate: 1e39",
               "job:18:20: optimizer.adam.learning_rate: expected a finite number above 0, got inf"},
        BadJob{"NoRate", "adam { learning_rate: 0.5 beta1: 0.25 }", "sgd {}",
               "job:18:13: optimizer.sgd.learning_rate: expected a finite number above 0, got 0 or nothing"},
        BadJob{"BetaOne", "beta1: 0.25", "beta1: 1",
               "job:18:39: optimizer.adam.beta1: expected a number from 0 to less than 1, got 1"},
        BadJob{"NegativeStaleness", "staleness: 2", "staleness: -1",
               "job:19:21: consistency.ssp.staleness: expected an integer from 0 to 1000000, got -1"},
        BadJob{"NegativePs", "ps_count: 2", "ps_count: -2",
               "job:20:11: cluster.ps_count: expected an integer from 1 to 1024, got -2"},
        BadJob{"TooManyWorkers", "ps_count: 2", "worker_count: 1025",
               "job:20:11: cluster.worker_count: expected an integer from 1 to 1024, got 1025"},
        BadJob{"TinyShards", "ps_count: 2", "shard_bytes: 65535",
               "job:20:11: cluster.shard_bytes: expected an integer from 65536 to 268435456, got 65535"},
        BadJob{"ShortLease", "seconds: 5", "nanos: 99999999",
               "job:20:23: cluster.worker_lease: expected 100 ms to 1 h, got 0 s and 99999999 ns"},
        BadJob{"LongLease", "seconds: 5", "seconds: 3600 nanos: 1",
               "job:20:23: cluster.worker_lease: expected 100 ms to 1 h, got 3600 s and 1 ns"},
        BadJob{"OverflowingLease", "seconds: 5", "seconds: 9223372036854775807",
               "job:20:23: cluster.worker_lease: expected 100 ms to 1 h, got 9223372036854775807 s and 0 ns"},
        BadJob{"NegativeKeep", "epochs: 3", "epochs: 3 checkpoint { max_to_keep: -1 }",
               "job:2:24: checkpoint.max_to_keep: expected an integer from 1 to 2147483647, got -1"},
        BadJob{"NegativeEvaluation", "epochs: 3", "epochs: 3 evaluation { every_epochs: -1 }",
               "job:2:24: evaluation.every_epochs: expected an integer from 1 to 2147483647, got -1"}),
    NameOf);

TEST(JobFile, GoodOneIsAccepted) { EXPECT_THAT(ParseJob("job", kGoodJob), IsOk()); }

TEST(JobFile, LimitsThemselvesAreAccepted) {
  std::string text = kGoodJob;
  text.replace(text.find("epochs: 3"), 9, "epochs: 2147483647");
  text.replace(text.find("batch_size: 64"), 14, "batch_size: 1048576");
  text.replace(text.find("seconds: 5"), 10, "seconds: 3600");
  EXPECT_THAT(ParseJob("job", text), IsOk());
}

TEST(JobFile, EmptyOneIsRefused) {
  EXPECT_THAT(ParseJob("job", ""), StatusIs(absl::StatusCode::kInvalidArgument,
                                            StrEq("job: name: expected 1 to 63 characters of [a-z0-9_-], got \"\"")));
}

TEST(JobFile, HugeOneIsRefused) {
  EXPECT_THAT(ParseJob("job", std::string((4 << 20) + 1, ' ')),
              StatusIs(absl::StatusCode::kInvalidArgument, StrEq("job: expected at most 4194304 bytes, got 4194305")));
}

TEST(JobFile, AnyPrefixIsReadWithoutHarm) {
  const absl::string_view text = kGoodJob;
  for (size_t size = 0; size < text.size(); ++size) {
    const absl::StatusOr<ParsedJob> job = ParseJob("job", std::string(text.substr(0, size)));
    // From the optimizer's closing brace on, the rest has defaults.
    EXPECT_TRUE(job.ok() || job.status().message().substr(0, 3) == "job") << size;
    EXPECT_FALSE(job.ok() && size < text.find("} }\nconsistency")) << size;
  }
}

TEST(JobFile, AnyFlippedByteIsReadWithoutHarm) {
  for (const int flip : {0x01, 0x20, 0x80, 0xff}) {
    std::string text = kGoodJob;
    for (char& c : text) {
      c = static_cast<char>(c ^ flip);
      const absl::StatusOr<ParsedJob> job = ParseJob("job", text);
      if (!job.ok()) {
        EXPECT_EQ(job.status().message().substr(0, 3), "job");
      }
      c = static_cast<char>(c ^ flip);
    }
  }
}

// Names of the fields below a message whose numbers nothing bounds.
void CollectUnbounded(const Descriptor& message, std::string* names) {
  for (int f = 0; f < message.field_count(); ++f) {
    const FieldDescriptor& field = *message.field(f);
    const FieldDescriptor::CppType type = field.cpp_type();
    if (type == FieldDescriptor::CPPTYPE_MESSAGE) {
      CollectUnbounded(*field.message_type(), names);
    } else if (type != FieldDescriptor::CPPTYPE_BOOL && type != FieldDescriptor::CPPTYPE_STRING &&
               FindIntegerRange(field) == nullptr && FindNumberRange(field) == nullptr) {
      absl::StrAppend(names, field.full_name(), " ");
    }
  }
}

TEST(JobFile, EveryNumberHasARange) {
  std::string unbounded;
  CollectUnbounded(*JobSpec::descriptor(), &unbounded);
  // A seed is any number; durations are checked as a whole.
  EXPECT_EQ(unbounded,
            "lagrange.JobSpec.seed google.protobuf.Duration.seconds google.protobuf.Duration.nanos "
            "google.protobuf.Duration.seconds google.protobuf.Duration.nanos ");
}

}  // namespace
}  // namespace lagrange

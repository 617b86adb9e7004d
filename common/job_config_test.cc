#include "common/job_config.h"

#include <fstream>
#include <sstream>
#include <string>

#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

constexpr char kSmallJob[] = R"(
name: "small"
epochs: 1
batch_size: 8
model {
  input_shape: 4
  class_count: 2
  layers { dense { units: 8 } }
  layers { relu {} }
  layers { name: "middle" dense { units: 8 } }
  layers { relu {} }
  layers { dense { units: 2 } }
}
data { train { idx { images_path: "i" labels_path: "l" } } }
optimizer { adam {} }
)";

JobSpec Parsed(const std::string& text) {
  absl::StatusOr<ParsedJob> job = ParseJob("job", text);
  EXPECT_THAT(job, IsOk());
  return job.ok() ? job->spec : JobSpec();
}

TEST(Defaults, AreThoseOfTheReference) {
  const JobSpec job = Parsed(kSmallJob);
  EXPECT_EQ(job.seed(), 0u);
  EXPECT_TRUE(job.consistency().has_asp());
  EXPECT_EQ(job.checkpoint().max_to_keep(), 3);
  EXPECT_EQ(job.checkpoint().every_epochs(), 1);
  EXPECT_EQ(job.evaluation().every_epochs(), 1);
  EXPECT_EQ(job.evaluation().examples_per_task(), 2048);
  EXPECT_EQ(job.cluster().ps_count(), 1);
  EXPECT_EQ(job.cluster().worker_count(), 1);
  EXPECT_EQ(job.cluster().worker_lease().seconds(), 10);
  EXPECT_EQ(job.cluster().ps_lease().seconds(), 10);
  EXPECT_EQ(job.cluster().shard_bytes(), 4194304);
  EXPECT_EQ(job.max_bad_pushes(), 0);
  EXPECT_TRUE(job.prefetch());
  EXPECT_TRUE(job.model().loss().has_softmax_cross_entropy());
  EXPECT_EQ(job.data().train().idx().scale(), 1.0f / 255.0f);
  EXPECT_EQ(job.data().train().idx().offset(), 0);
}

TEST(Defaults, OfAdamAreThoseOfTheReference) {
  const AdamOptimizer adam = Parsed(kSmallJob).optimizer().adam();
  EXPECT_EQ(adam.learning_rate(), 0.001f);
  EXPECT_EQ(adam.beta1(), 0.9f);
  EXPECT_EQ(adam.beta2(), 0.999f);
  EXPECT_EQ(adam.epsilon(), 1e-7f);
}

TEST(Defaults, OfADenseLayerAreThoseOfTheReference) {
  const DenseLayer dense = Parsed(kSmallJob).model().layers(0).dense();
  EXPECT_TRUE(dense.use_bias());
  EXPECT_TRUE(dense.kernel_initializer().has_glorot_uniform());
  EXPECT_TRUE(dense.bias_initializer().has_zeros());
}

TEST(Defaults, LayersAreNumberedAmongTheirKind) {
  const ModelSpec model = Parsed(kSmallJob).model();
  EXPECT_EQ(model.layers(0).name(), "dense_0");
  EXPECT_EQ(model.layers(1).name(), "relu_0");
  EXPECT_EQ(model.layers(2).name(), "middle");
  EXPECT_EQ(model.layers(3).name(), "relu_1");
  EXPECT_EQ(model.layers(4).name(), "dense_2");
}

TEST(Defaults, OfSspIsThreeClocks) {
  EXPECT_EQ(Parsed(std::string(kSmallJob) + "consistency { ssp {} }").consistency().ssp().staleness(), 3);
}

TEST(Defaults, GivenZerosAreKept) {
  JobSpec job = Parsed(std::string(kSmallJob) + "consistency { ssp { staleness: 0 } } prefetch: false");
  EXPECT_EQ(job.consistency().ssp().staleness(), 0);
  EXPECT_FALSE(job.prefetch());
}

TEST(Defaults, LeaveWhatTheChiefDecides) {
  const JobSpec job = Parsed(kSmallJob);
  EXPECT_EQ(job.checkpoint().directory(), "");
  EXPECT_EQ(job.data().examples_per_lease(), 0);
}

TEST(Defaults, AreFilledInOnce) {
  JobSpec job = Parsed(kSmallJob);
  const std::string before = job.SerializeAsString();
  FillDefaults(&job);
  EXPECT_EQ(job.SerializeAsString(), before);
}

TEST(DescribeField, NamesLineAndColumn) {
  const absl::StatusOr<ParsedJob> job = ParseJob("dir/job.textproto", kSmallJob);
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(DescribeField(*job, "model.layers[2].dense.units"), "dir/job.textproto:10:35: model.layers[2].dense.units");
}

TEST(DescribeField, FallsBackToWhatSurroundsIt) {
  const absl::StatusOr<ParsedJob> job = ParseJob("job", kSmallJob);
  ASSERT_THAT(job, IsOk());
  EXPECT_EQ(DescribeField(*job, "model.layers[1].name"), "job:9:3: model.layers[1].name");
  EXPECT_EQ(DescribeField(*job, "cluster.ps_count"), "job: cluster.ps_count");
}

TEST(DescribeField, WithoutATextIsThePath) { EXPECT_EQ(DescribeField(ParsedJob(), "epochs"), "epochs"); }

// Computed by an independent program from the bytes of protoc --encode.
TEST(JobDigest, NeverChanges) { EXPECT_EQ(JobDigest(Parsed(kSmallJob)), "fbc5e636a8f3bb5d"); }

TEST(JobDigest, IsTheSameBeforeAndAfterDefaults) {
  JobSpec job = Parsed(kSmallJob);
  const std::string digest = JobDigest(job);
  job.mutable_optimizer()->mutable_adam()->clear_beta1();
  job.mutable_model()->mutable_layers(0)->clear_name();
  EXPECT_EQ(JobDigest(job), digest);
}

TEST(JobDigest, IgnoresWhatMayChangeBetweenRuns) {
  JobSpec job = Parsed(kSmallJob);
  const std::string digest = JobDigest(job);
  job.set_epochs(100);
  job.set_name("other");
  job.mutable_cluster()->set_ps_count(7);
  job.mutable_consistency()->mutable_bsp();
  job.mutable_checkpoint()->set_directory("/elsewhere");
  EXPECT_EQ(JobDigest(job), digest);
}

TEST(JobDigest, TellsJobsApart) {
  const JobSpec job = Parsed(kSmallJob);
  JobSpec other = job;
  other.set_seed(1);
  EXPECT_NE(JobDigest(other), JobDigest(job));
  other = job;
  other.set_batch_size(9);
  EXPECT_NE(JobDigest(other), JobDigest(job));
  other = job;
  other.mutable_data()->set_examples_per_lease(8);
  EXPECT_NE(JobDigest(other), JobDigest(job));
  other = job;
  other.mutable_optimizer()->mutable_sgd()->set_learning_rate(1);
  EXPECT_NE(JobDigest(other), JobDigest(job));
  other = job;
  other.mutable_model()->mutable_layers(0)->mutable_dense()->set_units(9);
  EXPECT_NE(JobDigest(other), JobDigest(job));
}

TEST(NearestName, ForgivesAThirdOfTheLetters) {
  EXPECT_EQ(NearestName("learnig_rte", {"momentum", "learning_rate"}), "learning_rate");
  EXPECT_EQ(NearestName("abcdef", {"abcxyz"}), "");
  EXPECT_EQ(NearestName("abcdef", {"abcdyz"}), "abcdyz");
}

TEST(NearestName, ForgivesOneLetterOfAShortName) { EXPECT_EQ(NearestName("ap", {"asp"}), "asp"); }

TEST(NearestName, ExchangedNeighboursCountOnce) { EXPECT_EQ(NearestName("adma", {"sgd", "adam"}), "adam"); }

TEST(NearestName, OfAHugeNameIsNone) { EXPECT_EQ(NearestName(std::string(100000, 'a'), {"a"}), ""); }

TEST(ParseConsistency, ReadsTheThreeNames) {
  EXPECT_TRUE(ParseConsistency("asp", {})->has_asp());
  EXPECT_TRUE(ParseConsistency("bsp", {})->has_bsp());
  EXPECT_EQ(ParseConsistency("ssp:0", {})->ssp().staleness(), 0);
  EXPECT_EQ(ParseConsistency("ssp:1000000", {})->ssp().staleness(), 1000000);
}

TEST(ParseConsistency, BareSspTakesTheJobsStaleness) {
  ConsistencySpec of_the_job;
  of_the_job.mutable_ssp()->set_staleness(5);
  EXPECT_EQ(ParseConsistency("ssp", of_the_job)->ssp().staleness(), 5);
  of_the_job.mutable_bsp();
  EXPECT_EQ(ParseConsistency("ssp", of_the_job)->ssp().staleness(), 3);
}

TEST(ParseConsistency, RefusesBadStaleness) {
  for (const char* text : {"ssp:", "ssp:-1", "ssp:1000001", "ssp:x", "ssp:1.5", "ssp:99999999999"}) {
    EXPECT_THAT(ParseConsistency(text, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("consistency: expected ssp:N with N from 0 to 1000000, got \"ssp:")));
  }
}

TEST(ParseConsistency, SuggestsTheNearestName) {
  EXPECT_THAT(ParseConsistency("bs", {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StrEq("consistency: expected asp, bsp, ssp or ssp:N, got \"bs\"; did you mean \"bsp\"?")));
}

TEST(DescribeConsistency, ReadsAsPeopleWriteIt) {
  EXPECT_EQ(DescribeConsistency(*ParseConsistency("asp", {})), "asp");
  EXPECT_EQ(DescribeConsistency(*ParseConsistency("bsp", {})), "bsp");
  EXPECT_EQ(DescribeConsistency(*ParseConsistency("ssp:4", {})), "ssp{4}");
}

TEST(Examples, FashionMnistJobIsGood) {
  std::ifstream file("examples/fashion_mnist_mlp.textproto");
  ASSERT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const JobSpec job = Parsed(text.str());
  EXPECT_EQ(job.name(), "fashion_mnist_mlp");
  EXPECT_EQ(job.epochs(), 10);
  EXPECT_EQ(job.cluster().ps_count(), 2);
  EXPECT_EQ(job.cluster().worker_count(), 2);
  EXPECT_TRUE(job.optimizer().has_adam());
  EXPECT_EQ(job.data().test().idx().labels_path(), "/usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz");
}

}  // namespace
}  // namespace lagrange

#include "chief/job_setup.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "chief/chief_service.h"
#include "chief/core/chief.h"
#include "common/clock.h"
#include "common/file_system.h"
#include "common/job_config.h"
#include "common/status_matchers.h"
#include "common/version.h"
#include "proto/channel_arguments.h"
#include "proto/control_plane.grpc.pb.h"
#include "proto/manifest_file.h"

namespace lagrange {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kJob[] = R"(
    name: "example" epochs: 3 batch_size: 8
    model { input_shape: [4] class_count: 2 layers { dense { units: 2 use_bias: false } } }
    data { examples_per_lease: 64 train { idx { images_path: "/i" labels_path: "/l" } } }
    optimizer { sgd { learning_rate: 0.1 } }
    cluster { ps_count: 1 worker_count: 1 })";

class JobSetupTest : public testing::Test {
 protected:
  JobSetupTest() {
    std::string pattern = (fs::temp_directory_path() / "job_setup_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    flags_.state_directory = directory_ + "/state";
    auto job = ParseJob("job.textproto", kJob);
    EXPECT_THAT(job, IsOk());
    job_ = job->spec;
  }
  ~JobSetupTest() override { fs::remove_all(directory_); }

  // A checkpoint of the job after one epoch, in CHECKPOINT.
  std::string WriteCheckpoint(const JobSpec& job, const std::string& optimizer = "sgd") {
    const std::string directory = directory_ + "/checkpoint";
    EXPECT_THAT(MakeDirectories(directory), IsOk());
    std::ofstream(directory + "/ps-00000-of-00001.safetensors") << "123456789";
    CheckpointManifest manifest;
    manifest.set_format_version(kCheckpointFormatVersion);
    manifest.set_job_name("example");
    manifest.set_job_digest(JobDigest(job));
    manifest.set_model_digest("0123456789abcdef");
    manifest.set_optimizer(optimizer);
    manifest.set_cut(2);
    manifest.set_generation(1);
    manifest.mutable_ledger()->set_epochs_complete(1);
    manifest.mutable_ledger()->set_leases_per_epoch(2);
    manifest.mutable_ledger()->set_batch_size(job.batch_size());
    manifest.mutable_ledger()->set_examples_per_lease(64);
    manifest.add_variables()->set_name("dense_0/kernel");
    manifest.mutable_variables(0)->add_shape(5);
    manifest.add_files()->set_name("ps-00000-of-00001.safetensors");
    manifest.mutable_files(0)->set_size_bytes(9);
    manifest.mutable_files(0)->set_crc32c(0xe3069283u);
    EXPECT_THAT(WriteManifest(directory, manifest), IsOk());
    return directory;
  }

  absl::Status StartCore(const JobSetup& setup) {
    ChiefEffects effects;
    return NewChiefCore(setup.options, setup.durable, RealClock().Now(), &effects).status();
  }

  // What a chief has done once it has begun.
  void BeginJob() {
    auto setup = SetUpJob(flags_, job_);
    ASSERT_THAT(setup, IsOk());
    if (setup->options.restore.has_value()) {
      ASSERT_THAT(setup->store->SaveRestore(*setup->options.restore), IsOk());
    }
    ASSERT_THAT(setup->store->Commit({CounterRecord{"term", 1}}), IsOk());
  }

  std::string directory_;
  ChiefFlags flags_;
  JobSpec job_;
};

TEST_F(JobSetupTest, CheckpointsGoBelowTheStateUnlessTheJobSaysWhere) {
  EXPECT_EQ(SetUpJob(flags_, job_)->options.checkpoint_directory, directory_ + "/state/checkpoints");
  job_.mutable_checkpoint()->set_directory(directory_ + "/elsewhere/./x/");
  EXPECT_EQ(SetUpJob(flags_, job_)->options.checkpoint_directory, directory_ + "/elsewhere/x");
}

TEST_F(JobSetupTest, TheTokenLiesInTheCheckpointDirectory) {
  const auto setup = SetUpJob(flags_, job_);
  ASSERT_THAT(setup, IsOk());
  EXPECT_EQ(setup->options.directory_token.size(), 32);
  EXPECT_THAT(ReadFile(TokenPath(setup->options), 100), IsOkAndHolds(setup->options.directory_token));
}

TEST_F(JobSetupTest, ACheckpointDirectoryThatCannotBeMadeIsNamed) {
  std::ofstream(directory_ + "/file") << "x";
  job_.mutable_checkpoint()->set_directory(directory_ + "/file/x");
  const auto setup = SetUpJob(flags_, job_);
  EXPECT_THAT(setup.status().ToString(), AllOf(HasSubstr("checkpoint.directory"), HasSubstr(directory_ + "/file")));
}

TEST_F(JobSetupTest, HeartbeatsFitTheShortestLease) {
  job_.mutable_cluster()->mutable_worker_lease()->set_seconds(0);
  job_.mutable_cluster()->mutable_worker_lease()->set_nanos(500'000'000);
  EXPECT_EQ(SetUpJob(flags_, job_)->options.heartbeat_interval, absl::Milliseconds(100));
}

TEST_F(JobSetupTest, AWholeCheckpointIsTakenAndItsPathMadeAbsolute) {
  flags_.restore_directory = WriteCheckpoint(job_) + "/../checkpoint/";
  const auto setup = SetUpJob(flags_, job_);
  ASSERT_THAT(setup, IsOk());
  ASSERT_TRUE(setup->options.restore.has_value());
  EXPECT_EQ(setup->options.restore->directory(), directory_ + "/checkpoint");
  EXPECT_EQ(setup->options.restore->manifest().cut(), 2);
  EXPECT_THAT(StartCore(*setup), IsOk());
}

TEST_F(JobSetupTest, ADirectoryWithoutManifestIsNoCheckpoint) {
  flags_.restore_directory = WriteCheckpoint(job_);
  fs::remove(flags_.restore_directory + "/manifest.json");
  EXPECT_THAT(SetUpJob(flags_, job_), StatusIs(absl::StatusCode::kNotFound,
                                               AllOf(HasSubstr(directory_ + "/checkpoint"), HasSubstr("manifest"))));
}

TEST_F(JobSetupTest, AFlippedByteIsFoundAndItsFileNamed) {
  flags_.restore_directory = WriteCheckpoint(job_);
  std::ofstream(flags_.restore_directory + "/ps-00000-of-00001.safetensors") << "12345678:";
  EXPECT_THAT(SetUpJob(flags_, job_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/checkpoint/ps-00000-of-00001.safetensors")));
}

TEST_F(JobSetupTest, ACheckpointOfAnotherOptimizerIsRefusedNamingBoth) {
  flags_.restore_directory = WriteCheckpoint(job_, "adam");
  const auto setup = SetUpJob(flags_, job_);
  ASSERT_THAT(setup, IsOk());
  EXPECT_THAT(StartCore(*setup),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("adam"), HasSubstr("sgd"))));
}

TEST_F(JobSetupTest, ARestartNeedsNeitherTheFlagNorTheFiles) {
  flags_.restore_directory = WriteCheckpoint(job_);
  BeginJob();
  fs::remove_all(flags_.restore_directory);
  const auto same_flags = SetUpJob(flags_, job_);
  ASSERT_THAT(same_flags, IsOk());
  EXPECT_EQ(same_flags->options.restore->manifest().cut(), 2);
}

TEST_F(JobSetupTest, ARestartWithoutTheFlagStillKnowsWhereTheJobBegan) {
  flags_.restore_directory = WriteCheckpoint(job_);
  BeginJob();
  flags_.restore_directory.clear();
  const auto setup = SetUpJob(flags_, job_);
  ASSERT_THAT(setup, IsOk());
  ASSERT_TRUE(setup->options.restore.has_value());
  EXPECT_EQ(setup->options.restore->directory(), directory_ + "/checkpoint");
}

TEST_F(JobSetupTest, AJobThatHasBegunCannotBeginFromACheckpoint) {
  BeginJob();
  flags_.restore_directory = WriteCheckpoint(job_);
  EXPECT_THAT(SetUpJob(flags_, job_),
              StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("--restore"), HasSubstr("--state_dir"))));
}

// Over a real socket: the model is known only when a worker brings it.
TEST_F(JobSetupTest, ACheckpointOfAnotherModelEndsTheJobNamingBoth) {
  flags_.restore_directory = WriteCheckpoint(job_);
  auto setup = SetUpJob(flags_, job_);
  ASSERT_THAT(setup, IsOk());
  const RealClock clock;
  setup->options.farewell_timeout = absl::Milliseconds(100);
  ChiefServerOptions server_options;
  server_options.listen_address = "127.0.0.1:0";
  server_options.on_progress = [](absl::string_view) {};
  server_options.clock = &clock;
  auto server = ChiefServer::Listen(server_options);
  ASSERT_THAT(server, IsOk());
  ChiefEffects first;
  auto core = NewChiefCore(setup->options, setup->durable, clock.Now(), &first);
  ASSERT_THAT(core, IsOk());
  ASSERT_THAT((*server)->Begin(*std::move(core), std::move(first), setup->store.get()), IsOk());
  const auto stub = ChiefService::NewStub(grpc::CreateCustomChannel(
      (*server)->bound_address(), grpc::InsecureChannelCredentials(), ClientChannelArguments()));
  RegisterRequest request;
  request.set_role(WORKER);
  request.set_protocol_version(kProtocolVersion);
  request.set_process_id(1);
  request.set_has_model(true);
  request.set_train_records(100);
  request.add_variables()->set_name("dense_0/kernel");
  request.mutable_variables(0)->add_shape(4);
  request.mutable_variables(0)->add_shape(2);
  request.mutable_variables(0)->mutable_initializer()->mutable_zeros();
  grpc::ClientContext context;
  RegisterResponse response;
  ASSERT_TRUE(stub->Register(&context, request, &response).ok());
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT((*server)->WaitForExit().status,
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(directory_ + "/checkpoint"),
                                                                 HasSubstr("model"), HasSubstr("0123456789abcdef"))));
}

}  // namespace
}  // namespace lagrange

#include "worker/worker.h"

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "worker/worker_testing.h"

namespace lagrange {
namespace {

// What chief and ps saw. Written on the worker's deciding thread, read after Run.
struct World {
  std::set<std::string> done;
  std::vector<BatchSkipped> skipped;
  std::vector<LeaveRequest> leaves;
  double gradient_sum = 0;
  int pushes = 0;
  int leases_given = 0;
  // What to do instead of giving the second lease.
  std::function<void()> on_second_lease;
  // The first pull gets no answer, and the next heartbeat asks to register again.
  bool loses_first_pull = false;
  uint64_t lost_pull = 0;
  bool registers_again = false;
  std::vector<uint64_t> forgotten;
  VariableSpec variable = SmallModel().variables()[0];
};

ShardMap SmallMap(const VariableSpec& variable) {
  ShardMap map;
  map.set_version(1);
  *map.add_variables() = variable;
  map.add_ps()->set_address("nowhere:1");
  ShardPlacement* shard = map.add_shards();
  shard->set_row_end(2);
  shard->set_element_end(2);
  return map;
}

// Gives both leases, then ends the job when all is reported.
class FakeChief final : public ChiefClient {
 public:
  explicit FakeChief(World* world) : world_(world) {}

  void Register(const RegisterRequest& request, Callback<RegisterResponse> done) override {
    RegisterResponse response;
    response.set_outcome(request.has_model() ? RegisterResponse::REGISTERED : RegisterResponse::JOB);
    *response.mutable_job() = SmallJob();
    response.set_incarnation(world_->registers_again ? 8 : 7);
    world_->leases_given = 0;
    response.set_task_index(1);
    response.set_term(1);
    response.set_generation(1);
    done(response);
  }
  void Heartbeat(const HeartbeatRequest&, Callback<HeartbeatResponse> done) override {
    HeartbeatResponse response;
    response.set_directive(CONTINUE);
    if (world_->lost_pull != 0 && !world_->registers_again) {
      world_->registers_again = true;
      response.set_directive(REGISTER_AGAIN);
    }
    response.set_term(1);
    response.set_generation(1);
    done(response);
  }
  void AcquireWork(const AcquireWorkRequest& request, Callback<AcquireWorkResponse> done) override {
    AcquireWorkResponse response;
    response.set_term(1);
    response.set_generation(1);
    if (request.map_version() == 0) *response.mutable_shard_map() = SmallMap(world_->variable);
    if (world_->leases_given < 1 || (world_->leases_given < 2 && !world_->on_second_lease)) {
      response.mutable_lease()->set_lease(world_->leases_given++);
    } else if (world_->done.size() + world_->skipped.size() == 5) {
      response.set_directive(FINISH);
    } else {
      response.mutable_retry_after();
      if (world_->on_second_lease) world_->on_second_lease();
    }
    done(response);
  }
  void ReportBatches(const ReportBatchesRequest& request, Callback<ReportBatchesResponse> done) override {
    ReportBatchesResponse response;
    response.set_term(1);
    response.set_generation(1);
    for (const BatchDone& batch : request.done()) {
      response.add_verdicts(ACCEPTED);
      world_->done.insert(absl::StrCat(batch.key().lease(), "/", batch.key().batch()));
    }
    for (const BatchSkipped& batch : request.skipped()) {
      response.add_verdicts(ACCEPTED);
      world_->skipped.push_back(batch);
    }
    done(response);
  }
  void ReportEvaluation(const ReportEvaluationRequest&, Callback<ReportEvaluationResponse> done) override {
    done(absl::UnimplementedError("no evaluation in this job"));
  }
  void Leave(const LeaveRequest& request, Callback<LeaveResponse> done) override {
    world_->leaves.push_back(request);
    done(LeaveResponse());
  }

 private:
  World* const world_;
};

class FakePs final : public PsClient {
 public:
  FakePs(World* world, ReplyCallback on_reply) : world_(world), on_reply_(std::move(on_reply)) {}

  absl::Status UseShardMap(const ShardMap&) override { return absl::OkStatus(); }
  void Pull(int32_t ps_index, uint64_t request_id, const RequestHeader&, const ParameterLayout& destination) override {
    if (world_->loses_first_pull && world_->lost_pull == 0) {
      world_->lost_pull = request_id;
      return;
    }
    destination.variables[0][1] = 5;
    (*destination.versions)[0] = 3;
    Reply(ps_index, request_id, PULL_REPLY);
  }
  void Push(int32_t ps_index, uint64_t request_id, const RequestHeader& header, const ParameterLayout& gradients,
            absl::Span<const uint32_t>) override {
    EXPECT_EQ((*gradients.versions)[0], 3u);
    EXPECT_EQ(gradients.variables[0][1], -1);
    world_->gradient_sum += gradients.variables[0][0] * header.example_count();
    ++world_->pushes;
    Reply(ps_index, request_id, PUSH_REPLY);
  }
  void Forget(int32_t, uint64_t request_id) override { world_->forgotten.push_back(request_id); }

 private:
  void Reply(int32_t ps_index, uint64_t request_id, FrameKind kind) {
    ReplyHeader reply;
    reply.set_code(OK);
    on_reply_(ps_index, request_id, kind, reply);
  }

  World* const world_;
  const ReplyCallback on_reply_;
};

class WorkerTest : public testing::Test {
 protected:
  std::unique_ptr<Worker> Make(const WorkerParts& parts) {
    WorkerOptions options;
    options.parts = parts;
    options.loop.heartbeat_interval = absl::Milliseconds(10);
    return std::make_unique<Worker>(options, &clock_, std::make_unique<FakeChief>(&world_),
                                    [this](PsClient::ReplyCallback on_reply, PsClient::ReconnectedCallback) {
                                      return std::make_unique<FakePs>(&world_, std::move(on_reply));
                                    });
  }

  const RealClock clock_;
  World world_;
};

TEST_F(WorkerTest, ComputesEachBatchOnceAndEndsWithTheJob) {
  EXPECT_TRUE(Make(SmallParts())->Run().ok());
  EXPECT_EQ(world_.done, (std::set<std::string>{"0/0", "0/1", "0/2", "1/0", "1/1"}));
  EXPECT_EQ(world_.pushes, 5);
  EXPECT_EQ(world_.gradient_sum, 45);
  ASSERT_EQ(world_.leaves.size(), 1u);
  EXPECT_FALSE(world_.leaves[0].failed());
}

TEST_F(WorkerTest, NonFiniteGradientReachesNoPsAndIsReported) {
  EXPECT_TRUE(Make(SmallParts({{4, NAN}}))->Run().ok());
  EXPECT_EQ(world_.pushes, 4);
  ASSERT_EQ(world_.skipped.size(), 1u);
  EXPECT_NE(world_.skipped[0].reason().find("variable small/kernel, worker 1, step "), std::string::npos);
}

TEST_F(WorkerTest, ExceptionInTheComputeThreadEndsTheWorkerAndHandsBackItsLease) {
  const absl::Status status = Make(SmallParts({{4, kThrow}}))->Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ExitStatusFor(status), 1);
  ASSERT_EQ(world_.leaves.size(), 1u);
  EXPECT_TRUE(world_.leaves[0].failed());
  EXPECT_EQ(world_.leaves[0].incarnation(), 7u);
  EXPECT_NE(world_.leaves[0].reason().find("device lost"), std::string::npos);
}

TEST_F(WorkerTest, BadDataEndsTheJobWithItsReason) {
  WorkerParts parts = SmallParts();
  parts.open_dataset = [](const DatasetSpec&, const DatasetExpectations&) -> absl::StatusOr<std::unique_ptr<Dataset>> {
    return absl::DataLossError("images: want 24 bytes, have 23");
  };
  const absl::Status status = Make(parts)->Run();
  EXPECT_EQ(ExitStatusFor(status), 2);
  ASSERT_EQ(world_.leaves.size(), 1u);
  EXPECT_TRUE(world_.leaves[0].fatal_for_job());
  EXPECT_EQ(world_.leaves[0].incarnation(), 0u);
  EXPECT_EQ(world_.leaves[0].reason(), "images: want 24 bytes, have 23");
}

TEST_F(WorkerTest, StopHandsBackTheLease) {
  std::unique_ptr<Worker> worker;
  world_.on_second_lease = [&worker] { worker->RequestStop(); };
  worker = Make(SmallParts());
  EXPECT_TRUE(worker->Run().ok());
  EXPECT_EQ(world_.leases_given, 1);
  ASSERT_EQ(world_.leaves.size(), 1u);
  EXPECT_FALSE(world_.leaves[0].failed());
  EXPECT_EQ(world_.done.size(), static_cast<size_t>(world_.pushes));
}

TEST_F(WorkerTest, PullOfAnEarlierIncarnationIsForgottenBeforeItsMemoryServesAgain) {
  world_.loses_first_pull = true;
  EXPECT_TRUE(Make(SmallParts())->Run().ok());
  EXPECT_EQ(world_.forgotten, std::vector<uint64_t>{world_.lost_pull});
  EXPECT_EQ(world_.done.size(), 5u);
  EXPECT_EQ(world_.leaves.back().incarnation(), 8u);
}

TEST_F(WorkerTest, MapOfOtherVariablesIsRefusedNamingBoth) {
  world_.variable.set_name("other/kernel");
  const absl::Status status = Make(SmallParts())->Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("expected small/kernel [2], got other/kernel [2]"), std::string::npos);
}

TEST(ExitStatusFor, TellsBadInputFromFailure) {
  EXPECT_EQ(ExitStatusFor(absl::OkStatus()), 0);
  EXPECT_EQ(ExitStatusFor(absl::NotFoundError("images")), 2);
  EXPECT_EQ(ExitStatusFor(absl::FailedPreconditionError("refused")), 2);
  EXPECT_EQ(ExitStatusFor(absl::UnavailableError("chief")), 1);
  EXPECT_EQ(ExitStatusFor(absl::AbortedError("job")), 1);
}

}  // namespace
}  // namespace lagrange

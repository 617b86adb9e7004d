#include "absl/strings/str_cat.h"
#include "chief/core/chief_scenario.h"
#include "common/partition.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A chief whose cluster takes no turns of its own: the test is the processes.
class ChiefRegistration : public ::testing::Test {
 protected:
  // Lets time pass with heartbeats of these incarnations.
  void Wait(absl::Duration duration, const std::vector<uint64_t>& heartbeats) {
    const absl::Time end = scenario.now + duration;
    while (scenario.now < end) {
      scenario.now += absl::Milliseconds(250);
      for (const uint64_t incarnation : heartbeats) {
        HeartbeatRequest request;
        request.set_incarnation(incarnation);
        scenario.Heartbeat(request);
      }
      Tick();
    }
  }
  void Tick() {
    ChiefEffects effects;
    scenario.chief()->Tick(scenario.now, &effects);
    for (const Record& record : effects.records) scenario.durable.Apply(record);
  }
  RegisterRequest Worker(uint64_t process_id, int32_t task_index) {
    RegisterRequest request = scenario.WorkerRequest(process_id);
    request.set_task_index(task_index);
    return request;
  }

  Scenario scenario;
};

TEST_F(ChiefRegistration, RefusesAnotherProtocolNamingBothVersionsAndBuilds) {
  RegisterRequest request = scenario.WorkerRequest(1);
  request.set_protocol_version(kProtocolVersion + 6);
  request.set_build_version("9.9.9");
  const RegisterResponse response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(),
              AllOf(HasSubstr("protocol 7"), HasSubstr("protocol 1"), HasSubstr("9.9.9"), HasSubstr(kBuildVersion)));
}

TEST_F(ChiefRegistration, RefusesOtherCountsNamingBoth) {
  RegisterRequest request = scenario.WorkerRequest(1);
  request.set_expected_worker_count(4);
  RegisterResponse response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), AllOf(HasSubstr("4 workers"), HasSubstr("declares 2")));
  request.clear_expected_worker_count();
  request.set_expected_ps_count(5);
  response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), AllOf(HasSubstr("5 ps"), HasSubstr("declares 2")));
}

TEST_F(ChiefRegistration, RefusesATaskIndexOutsideTheJobEvenOnTheFirstCall) {
  RegisterRequest request = scenario.WorkerRequest(1);
  request.set_has_model(false);
  request.set_task_index(2);
  const RegisterResponse response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), AllOf(HasSubstr("task_index 2"), HasSubstr("0 to 1")));
}

TEST_F(ChiefRegistration, MalformedRequestsAreRefused) {
  const std::vector<std::pair<std::string, std::function<void(RegisterRequest*)>>> cases = {
      {"role", [](auto* request) { request->clear_role(); }},
      {"process_id", [](auto* request) { request->clear_process_id(); }},
      {"host", [](auto* request) { request->set_host(std::string(1000, 'h')); }},
      {"task_index", [](auto* request) { request->set_task_index(-1); }},
      {"train record", [](auto* request) { request->set_train_records(0); }},
      {"test records", [](auto* request) { request->set_test_records(-1); }},
      {"dense_0/kernel", [](auto* request) { request->mutable_variables(0)->set_shape(0, -4); }},
      {"dense_0/kernel", [](auto* request) { *request->add_variables() = request->variables(0); }},
      {"shards",
       [](auto* request) {
         for (int i = 0; i < 20; ++i) {
           VariableSpec* variable = request->add_variables();
           variable->set_name("v" + std::to_string(i));
           variable->add_shape(int64_t{1} << 36);
         }
       }},
  };
  for (const auto& [named, spoil] : cases) {
    RegisterRequest request = scenario.WorkerRequest(1);
    spoil(&request);
    const RegisterResponse response = scenario.Register(request);
    EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION) << named;
    EXPECT_THAT(response.message(), HasSubstr(named));
  }
}

TEST_F(ChiefRegistration, ARepeatGetsTheSameIncarnation) {
  const RegisterResponse first = scenario.Register(scenario.WorkerRequest(1));
  const RegisterResponse second = scenario.Register(scenario.WorkerRequest(1));
  EXPECT_EQ(first.outcome(), RegisterResponse::REGISTERED);
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
}

TEST_F(ChiefRegistration, GivesTheLowestFreeIndex) {
  EXPECT_EQ(scenario.Register(Worker(1, 1)).task_index(), 1);
  EXPECT_EQ(scenario.Register(scenario.WorkerRequest(2)).task_index(), 0);
}

TEST_F(ChiefRegistration, AProcessThatGaveItsIncarnationUpGetsANewOneUnderItsIndex) {
  const RegisterResponse first = scenario.Register(Worker(1, 1));
  RegisterRequest again = scenario.WorkerRequest(1);
  again.set_previous_incarnation(first.incarnation());
  const RegisterResponse second = scenario.Register(again);
  EXPECT_EQ(second.outcome(), RegisterResponse::REGISTERED);
  EXPECT_GT(second.incarnation(), first.incarnation());
  EXPECT_EQ(second.task_index(), 1);
  EXPECT_EQ(scenario.durable.members.at(first.incarnation()).state, MemberState::kEvicted);
}

TEST_F(ChiefRegistration, TheFirstCallsOnlyFetchTheJob) {
  RegisterRequest worker = scenario.WorkerRequest(1);
  worker.set_has_model(false);
  RegisterRequest ps = scenario.PsRequest(2);
  ps.clear_directory_token();
  for (const RegisterRequest& request : {worker, ps}) {
    const RegisterResponse response = scenario.Register(request);
    EXPECT_EQ(response.outcome(), RegisterResponse::JOB);
    EXPECT_EQ(response.job().name(), "scenario");
    EXPECT_EQ(response.directory_token_file(), "token");
    EXPECT_EQ(response.checkpoint_directory(), "/checkpoints");
  }
  EXPECT_TRUE(scenario.durable.members.empty());
}

TEST_F(ChiefRegistration, RefusesAPsWithAnotherCheckpointDirectory) {
  RegisterRequest request = scenario.PsRequest(1);
  request.set_directory_token("wrong");
  const RegisterResponse response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), HasSubstr("/checkpoints"));
}

TEST_F(ChiefRegistration, RefusesAWorkerWithOtherDataOrAnotherModelNamingBoth) {
  scenario.Register(scenario.WorkerRequest(1));
  RegisterRequest data = scenario.WorkerRequest(2);
  data.set_train_records(39);
  EXPECT_THAT(scenario.Register(data).message(), AllOf(HasSubstr("train_records 39"), HasSubstr("40")));
  RegisterRequest model = scenario.WorkerRequest(2);
  model.mutable_variables(0)->set_shape(1, 3);
  EXPECT_THAT(scenario.Register(model).message(), AllOf(HasSubstr("[4, 3]"), HasSubstr("[4, 2]")));
  RegisterRequest initializer = scenario.WorkerRequest(2);
  initializer.mutable_variables(0)->mutable_initializer()->mutable_zeros();
  EXPECT_THAT(scenario.Register(initializer).message(), HasSubstr("zeros"));
}

TEST_F(ChiefRegistration, TheJobThatIsGivenOutSaysHowLargeALeaseIs) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.mutable_data()->set_examples_per_lease(0);
  Scenario unresolved(options);
  const RegisterResponse response = unresolved.Register(unresolved.WorkerRequest(1));
  // 10 batches over 2 workers are fewer than 8 leases each, so a lease is one batch.
  EXPECT_EQ(response.job().data().examples_per_lease(), 4);
}

TEST_F(ChiefRegistration, TwoLiveProcessesUnderOneIndexTheSecondIsRefusedNamingBoth) {
  const uint64_t first = scenario.Register(Worker(1, 1)).incarnation();
  EXPECT_EQ(scenario.Register(Worker(2, 1)).outcome(), RegisterResponse::JOB);
  Wait(absl::Seconds(1), {first});
  const RegisterResponse second = scenario.Register(Worker(2, 1));
  EXPECT_EQ(second.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(second.message(), AllOf(HasSubstr("task_index 1"), HasSubstr("host-1"), HasSubstr("host-2")));
  EXPECT_EQ(scenario.durable.members.at(first).state, MemberState::kLive);
}

TEST_F(ChiefRegistration, AFastRestartUnderTheSameIndexIsInWithinFiveSeconds) {
  const uint64_t old_one = scenario.Register(Worker(1, 1)).incarnation();
  // It dies and is started again at once, while its lease of 10 s runs.
  RegisterResponse response;
  const absl::Time restarted = scenario.now;
  do {
    response = scenario.Register(Worker(2, 1));
    Wait(absl::Milliseconds(500), {});
  } while (response.outcome() == RegisterResponse::JOB && scenario.now < restarted + absl::Seconds(20));
  EXPECT_EQ(response.outcome(), RegisterResponse::REGISTERED);
  EXPECT_LT(scenario.now - restarted, absl::Seconds(5));
  EXPECT_GT(response.incarnation(), old_one);
  // The old one's timer doesn't end the new one.
  Wait(absl::Seconds(15), {response.incarnation()});
  HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(response.incarnation());
  EXPECT_EQ(scenario.Heartbeat(heartbeat).directive(), CONTINUE);
  heartbeat.set_incarnation(old_one);
  EXPECT_EQ(scenario.Heartbeat(heartbeat).directive(), REGISTER_AGAIN);
}

TEST_F(ChiefRegistration, OneWorkerTooManyIsRefusedWithTheCount) {
  const uint64_t a = scenario.Register(scenario.WorkerRequest(1)).incarnation();
  const uint64_t b = scenario.Register(scenario.WorkerRequest(2)).incarnation();
  EXPECT_EQ(scenario.Register(scenario.WorkerRequest(3)).outcome(), RegisterResponse::JOB);
  Wait(absl::Seconds(1), {a, b});
  const RegisterResponse response = scenario.Register(scenario.WorkerRequest(3));
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), HasSubstr("2 worker processes"));
}

TEST_F(ChiefRegistration, TheIndexOfAWorkerThatLeftIsFreeAtOnce) {
  const uint64_t first = scenario.Register(Worker(1, 1)).incarnation();
  LeaveRequest leave;
  leave.set_incarnation(first);
  scenario.Leave(leave);
  EXPECT_EQ(scenario.Register(Worker(2, 1)).outcome(), RegisterResponse::REGISTERED);
}

TEST_F(ChiefRegistration, WhoIsMissingIsSaid) {
  HeartbeatRequest heartbeat;
  heartbeat.set_incarnation(scenario.Register(scenario.PsRequest(1)).incarnation());
  EXPECT_EQ(scenario.Heartbeat(heartbeat).waiting_for(),
            "waiting for ps: 1 of 2 registered; workers: 0 of 2 registered");
  EXPECT_EQ(scenario.Status().phase(), "waiting");
  EXPECT_THAT(scenario.Status().message(), HasSubstr("ps: 1 of 2"));
}

TEST(ChiefStart, RefusesTheStateOfAnotherJobNamingBothDigests) {
  Scenario scenario;
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.set_seed(7);
  ChiefEffects effects;
  const auto chief = NewChiefCore(options, scenario.durable, scenario.now, &effects);
  EXPECT_EQ(chief.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(chief.status().message()), HasSubstr("another job"));
}

absl::Status StartUnder(const ConsistencySpec& consistency, const Scenario& scenario) {
  ChiefOptions options = scenario.options;
  *options.job.mutable_consistency() = consistency;
  ChiefEffects effects;
  return NewChiefCore(options, scenario.durable, scenario.now, &effects).status();
}

TEST(ChiefStart, RefusesAnotherConsistencyOnceTheJobIsPlacedNamingBoth) {
  ConsistencySpec ssp;
  ssp.mutable_ssp()->set_staleness(2);
  Scenario scenario;
  EXPECT_TRUE(StartUnder(ssp, scenario).ok());
  ASSERT_TRUE(scenario.RunUntil([&] { return scenario.durable.map.version() > 0; }));
  const absl::Status status = StartUnder(ssp, scenario);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("ssp{2}"), HasSubstr("asp")));
  EXPECT_TRUE(StartUnder(scenario.options.job.consistency(), scenario).ok());
}

TEST(ChiefStart, RefusesAModelOfMoreShardsThanAFrameCanName) {
  ChiefOptions options = Scenario::DefaultOptions();
  options.job.mutable_cluster()->set_shard_bytes(2 * kMinShardBytes);
  Scenario scenario(options);
  RegisterRequest request = scenario.WorkerRequest(1);
  request.clear_variables();
  VariableSpec* variable = request.add_variables();
  variable->set_name("embedding");
  // Three quarters of a shard each: a row is a shard.
  variable->add_shape(kMaxShardCount + 1);
  variable->add_shape(2 * kMinShardBytes / 4 * 3 / 4);
  variable->mutable_initializer()->mutable_zeros();
  const RegisterResponse response = scenario.Register(request);
  EXPECT_EQ(response.outcome(), RegisterResponse::REFUSED_REGISTRATION);
  EXPECT_THAT(response.message(), AllOf(HasSubstr("cluster.shard_bytes"), HasSubstr(absl::StrCat(kMaxShardCount))));
  EXPECT_FALSE(scenario.durable.has_model);
}

}  // namespace
}  // namespace lagrange

#include "ps/ps_service.h"

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/file_system.h"
#include "common/status_matchers.h"
#include "common/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/checkpoint_files.h"
#include "ps/ps_commands_testing.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PsCommand Write(uint64_t cut, const std::string& directory) {
  PsCommand command = Command();
  command.mutable_write_checkpoint()->set_cut(cut);
  command.mutable_write_checkpoint()->set_directory(directory);
  command.mutable_write_checkpoint()->set_file_stem("ps-00000-of-00001");
  return command;
}

// The manifest that a chief would make of a written file.
RestoreSource SourceOf(const std::string& directory, const PsCommandResult& written) {
  RestoreSource source;
  source.set_directory(directory);
  CheckpointManifest* manifest = source.mutable_manifest();
  manifest->set_format_version(kCheckpointFormatVersion);
  manifest->set_job_digest("job");
  manifest->set_model_digest("model");
  manifest->set_optimizer("adam");
  *manifest->mutable_slot_names() = written.slot_names();
  manifest->mutable_ledger()->set_leases_per_epoch(2);
  manifest->mutable_ledger()->set_batch_size(1);
  manifest->mutable_ledger()->set_examples_per_lease(2);
  VariableEntry* variable = manifest->add_variables();
  variable->set_name("w");
  variable->add_shape(2);
  variable->add_shape(2);
  *manifest->mutable_files() = written.files();
  return source;
}

// A service over a real engine, without a socket.
struct ServiceParts {
  std::unique_ptr<Engine> engine = NewThreadSafeEngine(EngineOptions());
  std::vector<std::string> shut_down;
  PsService service{engine.get(),
                    {[](PsEffects) {}, [this](std::string reason) { shut_down.push_back(std::move(reason)); }}};

  void Admit() {
    engine->SetIdentity(kIncarnation, kTerm, kGeneration);
    service.AdmitCommands();
  }
  // One push of gradient 1 for a batch.
  void Push(int32_t batch) {
    RequestHeader header;
    header.set_protocol_version(kProtocolVersion);
    header.set_term(kTerm);
    header.set_generation(kGeneration);
    header.set_map_version(1);
    header.set_incarnation(77);
    header.set_cut(1);
    header.set_example_count(1);
    header.mutable_key()->set_batch(batch);
    PsEffects effects;
    ASSERT_TRUE(engine->BeginPush(header, 1, 1, &effects)) << effects.pushes[0].header.ShortDebugString();
    const std::vector<float> gradient(4, 1.0f);
    ASSERT_THAT(engine->ApplyPart(header, 0, 0, gradient), IsOk());
  }
  void Join() {
    PsCommand command = Command();
    MemberChange* change = command.mutable_set_membership()->add_changes();
    change->set_incarnation(77);
    change->set_sequence(1);
    change->set_state(MemberChange::JOINED);
    ASSERT_THAT(service.Handle(command), IsOk());
  }
};

TEST(PsService, CommandsWaitForTheIdentity) {
  ServiceParts parts;
  absl::StatusOr<PsCommandResult> result = absl::UnknownError("not yet");
  std::thread early([&] { result = parts.service.Handle(Install(5)); });
  parts.Admit();
  early.join();
  EXPECT_THAT(result, IsOk());
}

TEST(PsService, CommandsThatWaitAreAnsweredWhenItStops) {
  ServiceParts parts;
  absl::StatusOr<PsCommandResult> result = absl::UnknownError("not yet");
  std::thread early([&] { result = parts.service.Handle(Install(5)); });
  parts.service.Stop();
  early.join();
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kUnavailable));
}

TEST(PsService, TheEngineRefusesACommandOfAnEarlierTerm) {
  ServiceParts parts;
  parts.Admit();
  PsCommand command = Install(5);
  command.set_term(kTerm - 1);
  EXPECT_THAT(parts.service.Handle(command), StatusIs(absl::StatusCode::kAborted));
}

TEST(PsService, WritesTheForkOfTheCutAndNotWhatCameLater) {
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(Install(5)), IsOk());
  parts.Join();
  parts.Push(0);
  ASSERT_THAT(parts.service.Handle(Announce(6)), IsOk());
  parts.Push(1);
  const std::string directory = JoinPath(TestDirectory(), "made/by/the/ps");
  const auto written = parts.service.Handle(Write(6, directory));
  ASSERT_THAT(written, IsOk());
  ASSERT_EQ(written->files_size(), 1);
  EXPECT_EQ(written->files(0).name(), "ps-00000-of-00001.c6.g2.i11.safetensors");
  EXPECT_THAT(written->slot_names(), ElementsAre("m", "v"));
  const auto shards = ReadShards(SourceOf(directory, *written), {WantedShard{0, "w", {2, 2}, 0, 2}});
  ASSERT_THAT(shards, IsOk());
  EXPECT_EQ((*shards)[0].version, 1);
  // Adam's first step is the learning rate whatever the gradient.
  for (const float value : (*shards)[0].parameters.values()) EXPECT_NEAR(value, 1.0f, 1e-6f);
  ASSERT_EQ((*shards)[0].dedupe.open_size(), 1);
  EXPECT_THAT((*shards)[0].dedupe.open(0).applied_batches(), ElementsAre(0));
}

TEST(PsService, ARepeatedWriteIsAnsweredWithoutASecondFile) {
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(Install(5)), IsOk());
  ASSERT_THAT(parts.service.Handle(Announce(6)), IsOk());
  const std::string directory = TestDirectory();
  const auto first = parts.service.Handle(Write(6, directory));
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(RemoveFile(JoinPath(directory, first->files(0).name())), IsOk());
  const auto second = parts.service.Handle(Write(6, directory));
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->SerializeAsString(), first->SerializeAsString());
  EXPECT_FALSE(FileExists(JoinPath(directory, first->files(0).name())));
}

TEST(PsService, ACutThatIsNotHeldIsRefused) {
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(Install(5)), IsOk());
  EXPECT_THAT(parts.service.Handle(Write(9, TestDirectory())),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("cut 9")));
}

TEST(PsService, ADirectoryThatCantBeWrittenIsNamed) {
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(Install(5)), IsOk());
  ASSERT_THAT(parts.service.Handle(Announce(6)), IsOk());
  const std::string file = JoinPath(TestDirectory(), "a_file");
  ASSERT_THAT(WriteFileAtomically(file, "x"), IsOk());
  const auto written = parts.service.Handle(Write(6, file));
  EXPECT_FALSE(written.ok());
  EXPECT_THAT(std::string(written.status().message()), HasSubstr(file));
}

TEST(PsService, InstallsFromACheckpointWithSlotsVersionsAndDedupe) {
  const std::string directory = TestDirectory();
  ServiceParts before;
  before.Admit();
  ASSERT_THAT(before.service.Handle(Install(5)), IsOk());
  before.Join();
  before.Push(0);
  ASSERT_THAT(before.service.Handle(Announce(6)), IsOk());
  const auto written = before.service.Handle(Write(6, directory));
  ASSERT_THAT(written, IsOk());

  ServiceParts after;
  after.Admit();
  PsCommand restore = Install(9);
  *restore.mutable_install_shards()->mutable_restore() = SourceOf(directory, *written);
  ASSERT_THAT(after.service.Handle(restore), IsOk());
  // The same step on both sides comes to the same bits only if moments and step count came along.
  after.Join();
  before.Push(1);
  after.Push(1);
  ASSERT_THAT(before.service.Handle(Announce(10)), IsOk());
  ASSERT_THAT(after.service.Handle(Announce(10)), IsOk());
  const auto expected = before.engine->GetFork(10);
  const auto actual = after.engine->GetFork(10);
  ASSERT_THAT(expected, IsOk());
  ASSERT_THAT(actual, IsOk());
  EXPECT_EQ((*actual)[0].version, 2);
  EXPECT_EQ((*actual)[0].parameters.values(), (*expected)[0].parameters.values());
  EXPECT_EQ((*actual)[0].slots[1].values(), (*expected)[0].slots[1].values());
  EXPECT_EQ((*actual)[0].dedupe.SerializeAsString(), (*expected)[0].dedupe.SerializeAsString());
}

TEST(PsService, ARepeatedRestoreNeedsNoFiles) {
  const std::string directory = TestDirectory();
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(Install(5)), IsOk());
  ASSERT_THAT(parts.service.Handle(Announce(6)), IsOk());
  const auto written = parts.service.Handle(Write(6, directory));
  ASSERT_THAT(written, IsOk());
  PsCommand restore = Install(9);
  restore.set_generation(kGeneration + 1);
  *restore.mutable_install_shards()->mutable_restore() = SourceOf(directory, *written);
  ASSERT_THAT(parts.service.Handle(restore), IsOk());
  ASSERT_THAT(RemoveFile(JoinPath(directory, written->files(0).name())), IsOk());
  EXPECT_THAT(parts.service.Handle(restore), IsOk());
}

TEST(PsService, ADamagedCheckpointIsNamedAndNothingIsInstalled) {
  const std::string directory = TestDirectory();
  ServiceParts before;
  before.Admit();
  ASSERT_THAT(before.service.Handle(Install(5)), IsOk());
  ASSERT_THAT(before.service.Handle(Announce(6)), IsOk());
  const auto written = before.service.Handle(Write(6, directory));
  ASSERT_THAT(written, IsOk());
  const std::string path = JoinPath(directory, written->files(0).name());
  auto contents = ReadFile(path, 1 << 20);
  ASSERT_THAT(contents, IsOk());
  contents->back() ^= 1;
  ASSERT_THAT(WriteFileAtomically(path, *contents), IsOk());

  ServiceParts after;
  after.Admit();
  PsCommand restore = Install(9);
  *restore.mutable_install_shards()->mutable_restore() = SourceOf(directory, *written);
  EXPECT_THAT(after.service.Handle(restore), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  EXPECT_THAT(after.service.Handle(Announce(10)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(PsService, ShutDownIsPassedOnWithItsReason) {
  ServiceParts parts;
  parts.Admit();
  ASSERT_THAT(parts.service.Handle(ShutDownFor("data ran out")), IsOk());
  EXPECT_THAT(parts.shut_down, ElementsAre("data ran out"));
}

TEST(PsService, AShutDownForAnotherIncarnationIsNotPassedOn) {
  ServiceParts parts;
  parts.Admit();
  PsCommand command = ShutDownFor("");
  command.set_incarnation(kIncarnation + 1);
  EXPECT_THAT(parts.service.Handle(command), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(parts.shut_down, IsEmpty());
}

}  // namespace
}  // namespace lagrange

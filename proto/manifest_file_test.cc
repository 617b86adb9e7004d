#include "proto/manifest_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/match.h"
#include "common/file_system.h"
#include "common/version.h"

namespace lagrange {
namespace {

namespace fs = std::filesystem;

class ManifestFile : public testing::Test {
 protected:
  ManifestFile() {
    std::string pattern = (fs::temp_directory_path() / "manifest_file_test.XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    Write("ps-00000-of-00001.safetensors", "123456789");
  }
  ~ManifestFile() override { fs::remove_all(directory_); }

  void Write(const std::string& name, const std::string& contents) {
    std::ofstream(fs::path(directory_) / name, std::ios::binary) << contents;
  }
  bool Exists(const std::string& name) const { return fs::exists(fs::path(directory_) / name); }

  static CheckpointManifest Example() {
    CheckpointManifest manifest;
    manifest.set_format_version(kCheckpointFormatVersion);
    manifest.set_job_name("example");
    manifest.set_job_digest("00112233");
    manifest.set_model_digest("44556677");
    manifest.set_cut(7);
    manifest.set_optimizer("adam");
    manifest.add_slot_names("m");
    manifest.mutable_ledger()->set_epochs_complete(2);
    manifest.mutable_ledger()->set_leases_per_epoch(4);
    manifest.mutable_ledger()->set_batch_size(8);
    manifest.mutable_ledger()->set_examples_per_lease(64);
    VariableEntry* variable = manifest.add_variables();
    variable->set_name("dense_0/kernel");
    variable->add_shape(3);
    CheckpointFile* file = manifest.add_files();
    file->set_name("ps-00000-of-00001.safetensors");
    file->set_size_bytes(9);
    // The check value that every description of CRC-32C gives for "123456789".
    file->set_crc32c(0xe3069283u);
    return manifest;
  }

  std::string directory_;
};

TEST_F(ManifestFile, Crc32cOfTheStandardInputIsTheCheckValue) {
  EXPECT_EQ(*Crc32cOfFile(directory_ + "/ps-00000-of-00001.safetensors"), 0xe3069283u);
}

TEST_F(ManifestFile, WrittenManifestReadsBackEqual) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  const auto read = ReadManifest(directory_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), Example().SerializeAsString());
}

TEST_F(ManifestFile, JsonHasProtoFieldNames) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  const auto text = ReadFile(directory_ + "/manifest.json", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(absl::StrContains(*text, "\"format_version\": 1")) << *text;
}

TEST_F(ManifestFile, WritingLeavesNoTemporaryFile) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()), 2);
}

TEST_F(ManifestFile, NothingIsListedWhenAFileIsMissing) {
  fs::remove(directory_ + "/ps-00000-of-00001.safetensors");
  const absl::Status status = WriteManifest(directory_, Example());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ps-00000-of-00001.safetensors")) << status;
  EXPECT_FALSE(Exists("manifest.json"));
}

TEST_F(ManifestFile, NothingIsListedWhenAFileHasAnotherSize) {
  Write("ps-00000-of-00001.safetensors", "12345678");
  const absl::Status status = WriteManifest(directory_, Example());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "expected 9 bytes, got 8")) << status;
  EXPECT_FALSE(Exists("manifest.json"));
}

TEST_F(ManifestFile, FlippedByteIsFoundAndNamed) {
  Write("ps-00000-of-00001.safetensors", "123456788");
  EXPECT_TRUE(VerifyCheckpointFiles(directory_, Example(), FileCheck::kSizes).ok());
  const absl::Status status = VerifyCheckpointFiles(directory_, Example(), FileCheck::kSizesAndChecksums);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "ps-00000-of-00001.safetensors")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "e3069283")) << status;
}

TEST_F(ManifestFile, DirectoryWithoutManifestIsNoCheckpoint) {
  const absl::Status status = ReadManifest(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), directory_)) << status;
}

TEST_F(ManifestFile, ManifestCutShortIsRefused) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  fs::resize_file(directory_ + "/manifest.json", 100);
  const absl::Status status = ReadManifest(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "manifest.json")) << status;
}

TEST_F(ManifestFile, UnknownFieldIsRefused) {
  Write("manifest.json", "{\"format_version\": 1, \"job_digset\": \"x\"}");
  const absl::Status status = ReadManifest(directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "job_digset")) << status;
}

TEST_F(ManifestFile, DeletionTakesFilesAndDirectory) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  ASSERT_TRUE(DeleteCheckpoint(directory_).ok());
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(ManifestFile, DeletionKeepsWhatIsNotOfTheCheckpoint) {
  ASSERT_TRUE(WriteManifest(directory_, Example()).ok());
  Write("notes.txt", "mine");
  ASSERT_TRUE(DeleteCheckpoint(directory_).ok());
  EXPECT_TRUE(Exists("notes.txt"));
  EXPECT_FALSE(Exists("manifest.json"));
  EXPECT_FALSE(Exists("ps-00000-of-00001.safetensors"));
}

TEST_F(ManifestFile, DeletionCanBeRepeated) {
  ASSERT_TRUE(DeleteCheckpoint(directory_).ok());
  EXPECT_TRUE(DeleteCheckpoint(directory_).ok());
}

struct BadManifest {
  const char* what;
  std::function<void(CheckpointManifest*)> spoil;
  absl::StatusCode code;
  const char* message;
};

TEST_F(ManifestFile, EachBadFieldIsNamed) {
  const BadManifest cases[] = {
      {"format", [](auto* m) { m->set_format_version(2); }, absl::StatusCode::kFailedPrecondition,
       "format_version: expected 1, got 2"},
      {"job digest", [](auto* m) { m->clear_job_digest(); }, absl::StatusCode::kInvalidArgument, "job_digest"},
      {"model digest", [](auto* m) { m->clear_model_digest(); }, absl::StatusCode::kInvalidArgument, "model_digest"},
      {"optimizer", [](auto* m) { m->clear_optimizer(); }, absl::StatusCode::kInvalidArgument, "optimizer"},
      {"no files", [](auto* m) { m->clear_files(); }, absl::StatusCode::kInvalidArgument, "files"},
      {"path", [](auto* m) { m->mutable_files(0)->set_name("../x.safetensors"); }, absl::StatusCode::kInvalidArgument,
       "files[0].name"},
      {"absolute", [](auto* m) { m->mutable_files(0)->set_name("/etc/passwd"); }, absl::StatusCode::kInvalidArgument,
       "files[0].name"},
      {"size", [](auto* m) { m->mutable_files(0)->set_size_bytes(-1); }, absl::StatusCode::kInvalidArgument,
       "files[0].size_bytes"},
      {"twice", [](auto* m) { *m->add_files() = m->files(0); }, absl::StatusCode::kInvalidArgument, "files[1].name"},
      {"shape", [](auto* m) { m->mutable_variables(0)->set_shape(0, 0); }, absl::StatusCode::kInvalidArgument,
       "variables[0].shape (dense_0/kernel)"},
      {"same variable", [](auto* m) { *m->add_variables() = m->variables(0); }, absl::StatusCode::kInvalidArgument,
       "variables[1].name"},
      {"batch size", [](auto* m) { m->mutable_ledger()->set_batch_size(0); }, absl::StatusCode::kInvalidArgument,
       "ledger.batch_size"},
      {"open lease", [](auto* m) { m->mutable_ledger()->add_open_leases()->set_epoch(1); },
       absl::StatusCode::kInvalidArgument, "ledger.open_leases[0].epoch"},
      {"lease number",
       [](auto* m) {
         m->mutable_ledger()->add_open_leases()->set_epoch(2);
         m->mutable_ledger()->mutable_open_leases(0)->set_lease(4);
       },
       absl::StatusCode::kInvalidArgument, "ledger.open_leases[0].lease"},
  };
  for (const BadManifest& bad : cases) {
    CheckpointManifest manifest = Example();
    bad.spoil(&manifest);
    const absl::Status status = ValidateManifest("where.json", manifest);
    EXPECT_EQ(status.code(), bad.code) << bad.what << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), bad.message)) << bad.what << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "where.json")) << bad.what << ": " << status;
  }
}

}  // namespace
}  // namespace lagrange

#include "common/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lagrange {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FileSystem : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/file_system_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }

  std::string Path(const std::string& name) const { return JoinPath(directory_, name); }

  std::string directory_;
};

TEST_F(FileSystem, WrittenFileReadsBack) {
  const std::string contents("a\0b\n", 4);
  ASSERT_THAT(WriteFileAtomically(Path("f"), contents), IsOk());
  EXPECT_THAT(ReadFile(Path("f"), 4), IsOkAndHolds(contents));
}

TEST_F(FileSystem, EmptyFileReadsBack) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), ""), IsOk());
  EXPECT_THAT(ReadFile(Path("f"), 0), IsOkAndHolds(std::string()));
}

TEST_F(FileSystem, WriteReplacesAndLeavesNoTemporary) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), "a longer one"), IsOk());
  ASSERT_THAT(WriteFileAtomically(Path("f"), "new"), IsOk());
  EXPECT_THAT(ReadFile(Path("f"), 100), IsOkAndHolds(std::string("new")));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("f")));
}

TEST_F(FileSystem, FileIsNotThereBeforeCommit) {
  absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Create(Path("f"));
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->Append(std::string("abc")), IsOk());
  EXPECT_FALSE(FileExists(Path("f")));
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory_);
  ASSERT_THAT(names, IsOk());
  ASSERT_EQ(names->size(), 1u);
  EXPECT_TRUE(IsTemporaryName(names->front()));
}

TEST_F(FileSystem, WriterWithoutCommitLeavesTheOldFileAlone) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), "old"), IsOk());
  {
    absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Create(Path("f"));
    ASSERT_THAT(writer->Append(std::string("half of the n")), IsOk());
  }
  EXPECT_THAT(ReadFile(Path("f"), 100), IsOkAndHolds(std::string("old")));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("f")));
}

TEST_F(FileSystem, TwoWritersOfOneFileDontMix) {
  AtomicFileWriter first = AtomicFileWriter::Create(Path("f")).value();
  AtomicFileWriter second = AtomicFileWriter::Create(Path("f")).value();
  ASSERT_THAT(first.Append(std::string("first")), IsOk());
  ASSERT_THAT(second.Append(std::string("second")), IsOk());
  ASSERT_THAT(second.Commit(), IsOk());
  ASSERT_THAT(first.Commit(), IsOk());
  EXPECT_THAT(ReadFile(Path("f"), 100), IsOkAndHolds(std::string("first")));
}

// As in a container, where the process number comes again.
TEST_F(FileSystem, LeftoversOfManyKilledProcessesAreNoObstacle) {
  for (int i = 0; i < 1100; ++i) {
    ASSERT_EQ(mknod(Path(absl::StrCat(".f.lagrange-tmp.", getpid(), ".", i)).c_str(), S_IFREG | 0600, 0), 0);
  }
  EXPECT_THAT(WriteFileAtomically(Path("f"), "x"), IsOk());
}

TEST_F(FileSystem, EachTemporaryNameIsAnother) {
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) {
    const AtomicFileWriter writer = AtomicFileWriter::Create(Path("f")).value();
    const auto listed = ListDirectory(directory_);
    ASSERT_THAT(listed, IsOk());
    names.insert(listed->begin(), listed->end());
  }
  EXPECT_EQ(names.size(), 20u);
}

TEST_F(FileSystem, WriterCountsAndChecksums) {
  AtomicFileWriter writer = AtomicFileWriter::Create(Path("f")).value();
  ASSERT_THAT(writer.Append(std::string("12345")), IsOk());
  ASSERT_THAT(writer.Append(std::string("6789")), IsOk());
  EXPECT_EQ(writer.size_bytes(), 9);
  EXPECT_EQ(writer.crc32c(), 0xe3069283u);
}

TEST_F(FileSystem, FailedRenameRemovesTheTemporary) {
  ASSERT_THAT(MakeDirectories(Path("taken")), IsOk());
  EXPECT_THAT(WriteFileAtomically(Path("taken"), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("taken: rename: Is a directory")));
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("taken")));
}

TEST_F(FileSystem, MissingFileIsNotFoundAndNamed) {
  EXPECT_THAT(ReadFile(Path("none"), 10), StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("none"))));
}

TEST_F(FileSystem, LargerFileThanAllowedIsRefused) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), "12345"), IsOk());
  EXPECT_THAT(ReadFile(Path("f"), 4),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("f: expected at most 4 bytes, got 5")));
}

TEST_F(FileSystem, DirectoryIsNoFile) {
  EXPECT_THAT(ReadFile(directory_, 10), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

TEST_F(FileSystem, NamedPipeIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadFile(Path("pipe"), 10),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

TEST_F(FileSystem, ReadAtReadsThePiece) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), "0123456789"), IsOk());
  const InputFile file = InputFile::Open(Path("f")).value();
  std::string piece(3, ' ');
  ASSERT_THAT(file.ReadAt(4, absl::MakeSpan(piece)), IsOk());
  EXPECT_EQ(piece, "456");
  EXPECT_EQ(file.size_bytes(), 10);
}

TEST_F(FileSystem, ReadPastTheEndNamesTheByte) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), "0123456789"), IsOk());
  const InputFile file = InputFile::Open(Path("f")).value();
  std::string piece(5, ' ');
  EXPECT_THAT(file.ReadAt(8, absl::MakeSpan(piece)),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("f: ends at byte 10, expected 3 more")));
}

TEST_F(FileSystem, MakeDirectoriesMakesParents) {
  ASSERT_THAT(MakeDirectories(Path("a/b/c")), IsOk());
  ASSERT_THAT(MakeDirectories(Path("a/b/c")), IsOk());
  EXPECT_THAT(ListDirectory(Path("a/b")), IsOkAndHolds(ElementsAre("c")));
}

TEST_F(FileSystem, MakeDirectoriesRefusesAFileInTheWay) {
  ASSERT_THAT(WriteFileAtomically(Path("f"), ""), IsOk());
  EXPECT_THAT(MakeDirectories(Path("f")), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a directory")));
  EXPECT_THAT(MakeDirectories(Path("f/g")), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f/g")));
}

TEST_F(FileSystem, ListingIsSortedAndBounded) {
  for (const char* name : {"c", "a", "b"}) ASSERT_THAT(WriteFileAtomically(Path(name), ""), IsOk());
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(ElementsAre("a", "b", "c")));
  EXPECT_THAT(ListDirectory(directory_, 2), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(FileSystem, RemovedFilesAreGone) {
  ASSERT_THAT(MakeDirectories(Path("d")), IsOk());
  ASSERT_THAT(WriteFileAtomically(Path("d/f"), ""), IsOk());
  EXPECT_FALSE(RemoveDirectory(Path("d")).ok());
  EXPECT_THAT(RemoveFile(Path("d/f")), IsOk());
  EXPECT_THAT(RemoveFile(Path("d/f")), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(RemoveDirectory(Path("d")), IsOk());
  EXPECT_THAT(ListDirectory(directory_), IsOkAndHolds(IsEmpty()));
}

TEST(Paths, JoinHasOneSlash) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

TEST(Paths, DirectoryOfABareNameIsTheCurrentOne) {
  EXPECT_EQ(DirectoryOf("f"), ".");
  EXPECT_EQ(DirectoryOf("/f"), "/");
  EXPECT_EQ(DirectoryOf("a/b/f"), "a/b");
}

}  // namespace
}  // namespace lagrange

// What the real file system says when the machine says no. The rest of file_system.h is used by
// everything that writes and is tested there too.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/base/file_system.h"
#include "muster/base/log.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

class FileErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "muster-base-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    std::filesystem::permissions(dir_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(dir_);
  }
  std::string path(const std::string& name) const { return dir_ + "/" + name; }

  std::string dir_;
  std::unique_ptr<FileSystem> fs_ = posix_file_system();
};

TEST_F(FileErrors, FullDiskSaysWhatToDo) {
  auto file = fs_->create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.error().message();
  const Status status = (*file)->append("something");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().kind(), ErrorKind::kIo);
  EXPECT_EQ(status.error().message(),
            "cannot write '/dev/full': No space left on device; free some space or choose another "
            "directory");
}

// Root may do anything, so the test becomes somebody else in a process of its own.
TEST_F(FileErrors, MissingRightsSayWhatToDo) {
  ASSERT_EQ(::chmod(dir_.c_str(), 0555), 0);
  const auto try_to_create = [&] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(2);
    const auto file = fs_->create(path("x"));
    if (file.ok()) ::_exit(0);
    std::fprintf(stderr, "%s\n", file.error().message().c_str());
    ::_exit(1);
  };
  EXPECT_EXIT(try_to_create(), ::testing::ExitedWithCode(1),
              "cannot create '.*/x': Permission denied; check who owns it, or choose another "
              "directory");
}

// A limit on the size of files stops a write in the middle, as a quota does.
TEST_F(FileErrors, AWriteThatStopsHalfWayIsAnError) {
  const auto write_too_much = [&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    auto file = fs_->create(path("x"));
    const Status status = (*file)->append(std::string(5000, 'x'));
    // Not by stderr: its file may be longer than the limit.
    ::_exit(status.ok()                                                            ? 0
            : status.error().message().find("File too large") == std::string::npos ? 3
                                                                                   : 1);
  };
  EXPECT_EXIT(write_too_much(), ::testing::ExitedWithCode(1), "");
}

TEST_F(FileErrors, MissingThingsAreNamed) {
  EXPECT_EQ(fs_->read(path("no")).error().message(),
            "cannot open '" + path("no") + "': No such file or directory");
  EXPECT_EQ(fs_->create(path("no/x")).error().message(),
            "cannot create '" + path("no/x") + "': No such file or directory");
  EXPECT_THAT(fs_->rename(path("no"), path("x")).error().message(), HasSubstr("No such file"));
  EXPECT_THAT(fs_->sync_directory(path("no")).error().message(), HasSubstr("No such file"));
  EXPECT_FALSE(fs_->exists(path("no")));
  EXPECT_THAT(*fs_->list(path("no")), IsEmpty());
  EXPECT_TRUE(fs_->remove_all(path("no")).ok());
  EXPECT_THAT(fs_->read(dir_).error().message(), HasSubstr("Is a directory"));
  std::ofstream(path("file")) << "x";
  EXPECT_THAT(fs_->create_directories(path("file/sub")).error().message(),
              HasSubstr("cannot create the directory"));
  EXPECT_THAT(fs_->list(path("file")).error().message(), HasSubstr("Not a directory"));
}

TEST_F(FileErrors, AtomicWriteReplacesOrLeavesAlone) {
  ASSERT_TRUE(write_file_atomically(*fs_, path("f"), "old").ok());
  ASSERT_TRUE(write_file_atomically(*fs_, path("f"), "new").ok());
  EXPECT_EQ(*fs_->read(path("f")), "new");
  EXPECT_THAT(*fs_->list(dir_), ElementsAre("f"));
  const auto fails = [&](const std::string& aside) -> Status {
    EXPECT_TRUE(write_file_atomically(*fs_, aside, "half of").ok());
    return Error(ErrorKind::kIo, "the disk is full");
  };
  EXPECT_FALSE(replace_file(*fs_, path("f"), fails).ok());
  EXPECT_EQ(*fs_->read(path("f")), "new");
  EXPECT_THAT(*fs_->list(dir_), ElementsAre("f"));
}

TEST_F(FileErrors, FilesOfEveryKindOfContentReadBack) {
  std::string contents(200000, '\0');
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>(i * 31);
  for (const std::string& each : {std::string(), std::string("\0x", 2), contents}) {
    ASSERT_TRUE(write_file_atomically(*fs_, path("f"), each).ok());
    EXPECT_EQ(*fs_->read(path("f")), each);
  }
}

TEST_F(FileErrors, LogWritesLinesWithTimeAndLevel) {
  {
    auto log = Log::to_file(path("log"), LogLevel::kInfo, /*mirror=*/false);
    ASSERT_TRUE(log.ok()) << log.error().message();
    log->debug("not this");
    log->info("step {}", 7);
    log->warning("{{braces}} and 100 %");
    log->error("bad");
  }
  {
    auto again = Log::to_file(path("log"), LogLevel::kDebug, /*mirror=*/false);
    again->debug("appended");
  }
  const std::string text = *fs_->read(path("log"));
  const std::string stamp = "20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]*[.][0-9]*Z ";
  EXPECT_THAT(text,
              MatchesRegex(stamp + "info    step 7\n" + stamp + "warning [{]braces[}] and 100 %\n" +
                           stamp + "error   bad\n" + stamp + "debug   appended\n"));
}

TEST_F(FileErrors, LogMirrorsWarningsToStandardError) {
  auto log = Log::to_file(path("log"), LogLevel::kInfo, /*mirror=*/true);
  ASSERT_TRUE(log.ok());
  ::testing::internal::CaptureStderr();
  log->info("quiet");
  log->warning("look");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "muster: warning: look\n");
}

TEST_F(FileErrors, LogThatCannotBeWrittenSaysSo) {
  std::ofstream(path("file")) << "x";
  const auto log = Log::to_file(path("file/log"), LogLevel::kInfo, false);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().kind(), ErrorKind::kIo);
  EXPECT_THAT(log.error().message(), HasSubstr("cannot write the log: "));
  EXPECT_THAT(log.error().message(), HasSubstr(path("file/log")));
  Log nobody;
  nobody.error("dropped");
}

}  // namespace
}  // namespace muster

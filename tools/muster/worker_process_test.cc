// How signals travel is tested from outside, in tests/cli/launch_test.py.
#include "tools/muster/worker_process.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using testing::HasSubstr;

class FindWorker : public testing::Test {
 protected:
  FindWorker() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~FindWorker() override { std::filesystem::remove_all(folder_); }

  std::string folder(const std::string& name) const { return folder_ + "/" + name; }
  std::string program(const std::string& name, mode_t mode = 0755) const {
    std::filesystem::create_directories(folder(name));
    const std::string path = folder(name) + "/muster-worker";
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), mode);
    return path;
  }

 private:
  std::string folder_;
};

TEST_F(FindWorker, WhatIsNamedComesFirst) {
  WorkerPlaces places;
  places.path = "/nowhere::" + folder("path");
  const auto on_path = program("path");
  EXPECT_EQ(*find_worker(places), on_path);
  places.own_folder = folder("own");
  EXPECT_EQ(*find_worker(places), on_path) << "nothing beside us yet";
  const auto beside = program("own");
  EXPECT_EQ(*find_worker(places), beside);
  places.environment = program("environment");
  EXPECT_EQ(*find_worker(places), places.environment);
  places.given = program("given");
  EXPECT_EQ(*find_worker(places), places.given);
}

TEST_F(FindWorker, AFileThatCannotRunIsNoProgram) {
  WorkerPlaces places;
  places.own_folder = folder("own");
  program("own", 0644);
  const auto found = find_worker(places);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind(), ErrorKind::kMachine);
  EXPECT_THAT(found.error().message(), HasSubstr("./dev build"));
}

TEST_F(FindWorker, ANameThatIsWrongIsNotPassedOver) {
  WorkerPlaces places;
  places.path = folder("path");
  program("path");
  places.environment = folder("path");  // a folder
  const auto found = find_worker(places);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().kind(), ErrorKind::kUsage);
  EXPECT_THAT(found.error().message(), HasSubstr("MUSTER_WORKER"));
}

TEST(CaptureWorker, KeepsBothStreamsAndTheExitCode) {
  // More than a pipe holds, on both at once: whoever reads them one after the other never ends.
  const auto end = capture_worker(
      "/bin/sh", {"-c", "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; read x; exit 7"});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(end->signal, 0);
  EXPECT_EQ(end->output.size(), 200000u);
  EXPECT_EQ(end->errors.size(), 300000u);
}

TEST(CaptureWorker, ReportsASignal) {
  const auto end = capture_worker("/bin/sh", {"-c", "kill -SEGV $$"});
  ASSERT_TRUE(end.ok());
  EXPECT_EQ(end->signal, SIGSEGV);
}

TEST(CaptureWorker, AProgramThatIsNotThere) {
  const auto end = capture_worker("/nowhere/muster-worker", {});
  ASSERT_FALSE(end.ok());
  EXPECT_THAT(end.error().message(), HasSubstr("/nowhere/muster-worker"));
}

}  // namespace
}  // namespace muster::cli

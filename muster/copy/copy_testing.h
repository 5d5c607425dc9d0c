// What tests of copies have in common: places for them, and runs to be copied.
#pragma once

#include <fstream>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "muster/base/file_system.h"
#include "muster/base/scratch_directory.h"
#include "muster/ckpt/snapshot.h"
#include "muster/ckpt/snapshot_testing.h"
#include "muster/copy/copy_writer.h"
#include "muster/copy/fetch.h"
#include "muster/store/local_store.h"
#include "muster/store/s3_store.h"
#include "muster/store/server_testing.h"
#include "muster/store/store_testing.h"

namespace muster::copy {

// A run directory with checkpoints of TestState.
class TestRun {
 public:
  TestRun(FileSystem& files, std::string directory, int keep = 3)
      : files_(files),
        directory_(std::move(directory)),
        keep_(keep),
        store_(files, directory_ + "/checkpoints", keep, true) {
    EXPECT_TRUE(files_.create_directories(directory_).ok());
    std::ofstream(directory_ + "/job.yaml") << "muster: 1\n";
  }

  void write(int64_t step, uint64_t roster = 0, bool best = false) {
    std::ofstream(directory_ + "/metrics.jsonl", std::ios::app) << "{\"step\":" << step << "}\n";
    const ckpt::TestState state(step);
    auto view = state.view();
    view.roster = roster;
    view.best = best;
    const auto written = store_.write(view);
    EXPECT_TRUE(written.ok()) << written.error().message();
  }
  // The newest one here; -1: none.
  int64_t newest() {
    std::vector<std::string> notes;
    const auto loaded = store_.load_newest(&notes);
    EXPECT_TRUE(loaded.ok()) << loaded.error().message();
    EXPECT_TRUE(notes.empty()) << notes.front();
    if (!loaded.ok() || !*loaded) return -1;
    EXPECT_TRUE(ckpt::TestState((*loaded)->step).equals(**loaded));
    return (*loaded)->step;
  }
  std::string text(const std::string& name) {
    const auto read = files_.read(directory_ + "/" + name);
    return read.ok() ? *read : read.error().message();
  }
  CopyOptions options(const std::string& to) const {
    return {.to = to, .run_directory = directory_, .keep = keep_, .keep_best = true};
  }
  ckpt::SnapshotStore& store() { return store_; }
  const std::string& directory() const { return directory_; }

 private:
  FileSystem& files_;
  const std::string directory_;
  const int keep_;
  ckpt::SnapshotStore store_;
};

// A place whose objects with this in their names may not be read by this machine.
class DenyingStore final : public store::ForwardingStore {
 public:
  DenyingStore(store::Store& inner, std::string denied)
      : ForwardingStore(inner), denied_(std::move(denied)) {}
  Status read(const store::Object& object, uint64_t offset, std::span<std::byte> into) override {
    if (object.name.find(denied_) != std::string::npos) {
      return Error(ErrorKind::kMachine, "'{}' may not be accessed", object.name);
    }
    return ForwardingStore::read(object, offset, into);
  }

 private:
  const std::string denied_;
};

// Each test once with a directory and once with a real MinIO.
class CopyTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("file")) {
      store_ = std::make_unique<store::LocalStore>();
      to_ = scratch_.path() + "/copies/run";
      return;
    }
    if (const auto why = store::MinioServer::unavailable(); !why.empty()) GTEST_SKIP() << why;
    server_ = std::make_unique<store::MinioServer>();
    store_ = open();
    to_ = store::MinioServer::url("copies/run");
  }
  // Another one for the same place.
  std::unique_ptr<store::Store> open() {
    if (!server_) return std::make_unique<store::LocalStore>();
    return std::make_unique<store::S3Store>(server_->settings(), clock_);
  }
  TestRun make_run(const std::string& name, int keep = 3) {
    return {*files_, scratch_.path() + "/" + name, keep};
  }
  CopyWriter writer(const TestRun& run) { return {*store_, *files_, run.options(to_)}; }
  Result<Fetched> fetch(const std::string& name) {
    FetchOptions options;
    options.to = to_;
    options.run_directory = scratch_.path() + "/" + name;
    return fetch_run(*store_, *files_, options);
  }
  // The step that is fetched into a directory of this name; -1: none.
  int64_t fetched_step(const std::string& name) {
    const auto fetched = fetch(name);
    EXPECT_TRUE(fetched.ok()) << fetched.error().message();
    if (!fetched.ok()) return -2;
    EXPECT_TRUE(fetched->notes.empty()) << fetched->notes.front();
    const int64_t step = fetched->step.value_or(-1);
    EXPECT_EQ(make_run(name).newest(), step);
    return step;
  }
  size_t objects() {
    const auto found = store_->list(to_ + "/**");
    EXPECT_TRUE(found.ok()) << found.error().message();
    return found.ok() ? found->size() : 0;
  }

  SystemClock clock_;
  ScratchDirectory scratch_ = *ScratchDirectory::make("muster-copy-test");
  const std::unique_ptr<FileSystem> files_ = posix_file_system();
  std::unique_ptr<store::MinioServer> server_;
  std::unique_ptr<store::Store> store_;
  std::string to_;
};

}  // namespace muster::copy

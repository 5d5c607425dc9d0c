// The namespaces need a process of their own, and rights: tests/cli/verify_test.py has those.
#include "tools/muster-launch/verify/network.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

class WrapperScript : public testing::Test {
 protected:
  WrapperScript() : folder_((std::filesystem::temp_directory_path() / "muster-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    write("nsenter", "#!/bin/sh\nfor word; do echo \"$word\"; done > out\n");
    write("worker", "#!/bin/sh\nfor word; do echo \"$word\"; done > out\n");
  }
  ~WrapperScript() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    chmod(path.c_str(), 0755);
  }
  // The words that nsenter or the worker gets, one per line.
  std::string words(const std::string& given) const {
    write("wrapper", wrapper_script(folder_ + "/worker",
                                    {{"nsenter --net=A", "1.1"}, {"nsenter --net=B", "1.2"}}));
    // NOLINTNEXTLINE(concurrency-mt-unsafe): one thread
    EXPECT_EQ(system(("cd " + folder_ + " && PATH=.:$PATH ./wrapper " + given).c_str()), 0);
    std::ifstream file(folder_ + "/out");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
};

TEST_F(WrapperScript, EachSlotHasItsNamespaceAndItsAddress) {
  EXPECT_EQ(words("train --host 9.9 'a b' --id 1"),
            "--net=B\n--wd=" + folder_ + "\n--\n" + folder_ +
                "/worker\ntrain\na b\n--id\n1\n--host\n1.2\n");
}

TEST_F(WrapperScript, OthersAreOnlyStarted) {
  EXPECT_EQ(words("train --id joiner-1 --host 9.9"), "train\n--id\njoiner-1\n--host\n9.9\n");
  EXPECT_EQ(words("check --job x"), "check\n--job\nx\n");
}

}  // namespace
}  // namespace muster::cli

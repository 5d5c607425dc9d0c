// Muster's own step, without run directory, evaluation or screen, behind the protocol of
// bare_loop.cc.
//
//   muster_loop JOB.yaml [-s KEY=VALUE]...
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "muster/base/clock.h"
#include "muster/config/load.h"
#include "muster/train/numerics/fingerprint.h"
#include "muster/train/session.h"

namespace {

muster::Status run(const std::string& path, std::vector<std::string> sets) {
  const auto files = muster::posix_file_system();
  MUSTER_TRY(auto sources, muster::config::gather_sources(*files, path, std::move(sets)));
  MUSTER_TRY(auto loaded, muster::config::load_job(sources));
  const muster::train::Registries registries;
  MUSTER_TRY(const auto session, muster::train::Session::open(std::move(loaded.job), registries));
  const muster::SystemClock clock;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string out = "[";
    for (int n = std::stoi(line); n > 0; --n) {
      const auto start = clock.now();
      MUSTER_TRY(const auto report, session->step());
      (void)report;
      out += std::to_string(muster::seconds(clock.now() - start)) + (n > 1 ? ", " : "");
    }
    std::printf("%s]\n", out.c_str());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  muster::train::prepare_process();
  if (argc < 2) {
    std::fprintf(stderr, "usage: muster_loop JOB.yaml [-s KEY=VALUE]...\n");
    return 2;
  }
  std::vector<std::string> sets;
  for (int i = 3; i < argc; i += 2) sets.emplace_back(argv[i]);
  const auto status = run(argv[1], std::move(sets));
  if (status.ok()) return 0;
  std::fprintf(stderr, "muster_loop: %s\n", status.error().message().c_str());
  return static_cast<int>(status.error().kind());
}

// Workers on this machine: the same program with the same words, but for its --id and --site.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/launch/process.h"
#include "muster/launch/starter.h"

namespace muster::launch {

struct LocalOptions {
  std::string program;
  std::vector<std::string> arguments;  // "--id", ID goes behind them
  std::string folder;                  // is there; gets the workers' standard error, as ID.err
  // NOLINTNEXTLINE(readability-redundant-member-init): or who leaves it out is warned by GCC
  std::map<std::string, std::string> sites = {};  // by id; those that are not here have none
};

class LocalStarter final : public Starter {
 public:
  // `held` must outlive it.
  LocalStarter(LocalOptions options, const HeldSignals& held)
      : options_(std::move(options)), held_(held) {}

  Result<std::unique_ptr<Process>> start(const std::string& id) override;
  std::string last_words(const std::string& id, int lines) const override;

 private:
  LocalOptions options_;
  const HeldSignals& held_;
  std::map<std::string, int64_t> begins_;  // where in ID.err the last start begins
};

}  // namespace muster::launch

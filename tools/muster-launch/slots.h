// Where the workers of a job are started: on this machine (--workers) or on others (--hosts).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muster/launch/hosts.h"
#include "muster/launch/process.h"
#include "muster/launch/starter.h"

#include "tools/muster/ready_run.h"

namespace muster::cli {

struct Slots {
  std::vector<std::string> ids;
  std::vector<launch::Host> hosts;           // of each; empty: all are here
  std::vector<launch::Host> machines;        // all that --hosts lists, also those without workers
  std::map<std::string, std::string> sites;  // by id, of those that are here

  // Where the coordinator shall listen: as asked, else here only, else towards the hosts.
  std::string listen;
};

Result<Slots> plan_slots(const SeveralArguments& several, FileSystem& files);

// The site of worker `number` of `workers` on this machine, if there are so many sites.
std::string site_of(int64_t number, int64_t workers, int64_t sites);

// For a machine with another current directory.
std::string absolute_path(const std::string& path);

// An error if that is no address others could be told.
Status check_listen(const std::string& address);

// `coordinator`, `servers`: addresses, as workers reach them; of parameter servers the registry's,
// or nothing. `held` must outlive the result.
std::unique_ptr<launch::Starter> make_starter(const ReadyRun& ready, const Slots& slots,
                                              const std::string& coordinator,
                                              const std::string& servers,
                                              const launch::HeldSignals& held);

}  // namespace muster::cli

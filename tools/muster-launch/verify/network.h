// A network for the workers of one job, in which any two hosts can be cut off from each other: a
// laboratory (muster/lab), and which slot is on which of its hosts.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muster/base/result.h"
#include "muster/lab/lab.h"

namespace muster::cli {

class Network {
 public:
  // Call it while this process has one thread (Lab::make). Slots are on the hosts in turn; without
  // hosts, each has one of its own. `worker`: the program that slots are started with.
  static Result<Network> make(int slots, std::vector<lab::HostOptions> hosts,
                              const std::string& folder, const std::string& worker);
  Network(Network&& other) noexcept
      : lab_(std::move(other.lab_)), wrapper_(std::exchange(other.wrapper_, {})) {}
  Network& operator=(Network&&) = delete;
  ~Network();

  // Where this process, a coordinator and workers that belong to no slot are reached.
  static std::string address() { return lab::Lab::hub_address(); }
  // A program that starts the worker on the host of its --id ("0", "1", ...), with the --host of
  // that; with another id it only starts the worker.
  const std::string& worker() const { return wrapper_; }

  // From now on, or no more: no packet passes between the hosts of these two slots, in either
  // direction. An error if both are on one host.
  Status cut(const std::string& a, const std::string& b);
  Status heal(const std::string& a, const std::string& b);

 private:
  Network() = default;
  size_t host_of(const std::string& slot) const;
  Status write_wrapper(int slots, const std::string& folder, const std::string& worker);

  std::unique_ptr<lab::Lab> lab_;
  std::string wrapper_;
};

// The wrapper's text. `hosts`: for each slot the words before the command, and its address. Pure.
std::string wrapper_script(const std::string& worker,
                           const std::vector<std::pair<std::string, std::string>>& hosts);

}  // namespace muster::cli

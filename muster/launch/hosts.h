// The file behind --hosts: on which machines workers and parameter servers are started, and how ssh
// gets there.
//
//   - host: 10.0.0.1                          # all but this has a default
//     workers: 2                              # so many processes there
//     worker: /opt/muster/bin/muster-worker   # the program there
//     servers: 1                              # so many parameter servers there (spread_servers)
//     server: /opt/muster/bin/muster-server   # the program there
//     user: train
//     port: 2222
//     identity: keys/cluster                  # relative to this file
//     site: berlin                            # whose machines compute replicas together
//     address: 192.168.7.1                    # where other workers reach it, if not as `host`
//     options: [StrictHostKeyChecking=no]     # for ssh -o
//   - 10.0.0.2                                # the same as { host: 10.0.0.2 }
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/file_system.h"
#include "muster/base/result.h"

namespace muster::launch {

struct Host {
  std::string host;      // as ssh takes it: a name, an address, an entry of ~/.ssh/config
  int64_t workers = 1;   // 0 only with servers
  std::string worker;    // empty: the same path as here
  int64_t servers = -1;  // -1: as many as come to it
  std::string server;    // empty: the same path as here
  std::string user;      // empty: ssh's choice, like all below
  int64_t port = 0;
  std::string identity;
  std::string address;
  std::string site;  // empty: none
  std::vector<std::string> options;

  // Where other workers reach it.
  const std::string& reached_at() const { return address.empty() ? host : address; }
  bool operator==(const Host&) const = default;
};

// `name`: of the file, for errors; relative paths in it are taken from its directory.
Result<std::vector<Host>> parse_hosts(std::string_view yaml, const std::string& name);
Result<std::vector<Host>> read_hosts(FileSystem& files, const std::string& path);

// Where each of `total` parameter servers goes, as an index of `hosts`: hosts that say how many
// they have get these, and the rest is spread evenly over the others, in turn. An error if that
// gives another number.
Result<std::vector<size_t>> spread_servers(const std::vector<Host>& hosts, int64_t total);

}  // namespace muster::launch

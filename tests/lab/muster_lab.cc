// A laboratory of hosts for programs in other languages (tests/lab/lab.py):
//
//   muster-lab FILE
//
// makes the hosts that FILE describes (muster/lab/hosts_file.h) and writes one line of JSON: their
// names, addresses, and the words that run a command on them. Then it reads commands from standard
// input, one per line, and answers each with a line of JSON, {"error": "..."} if it failed:
//
//   cut A B, heal A B                        the link between two hosts
//   link A rate=10mbit delay=20ms loss=0.01  the link of a host; what is left out is none
//   bytes A                                  what went through it so far
//
// It ends, and the hosts with it, when its standard input does.
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/file_system.h"
#include "muster/base/scratch_directory.h"
#include "muster/lab/lab.h"

namespace {

using Json = nlohmann::ordered_json;
using muster::Error;
using muster::ErrorKind;
using muster::Result;
using muster::Status;
using muster::lab::Lab;

Json describe(const Lab& lab) {
  Json hosts = Json::array();
  for (size_t i = 0; i < lab.size(); ++i) {
    hosts.push_back({{"name", lab.name(i)}, {"address", lab.address(i)}, {"enter", lab.enter(i)}});
  }
  return {{"hub", {{"address", Lab::hub_address()}, {"enter", lab.enter_hub()}}}, {"hosts", hosts}};
}

// As one host of a hosts file.
Result<muster::lab::LinkOptions> read_link(const std::vector<std::string>& words) {
  std::string yaml = "hosts: [x]\n";
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t at = words[i].find('=');
    if (at == std::string::npos) {
      return Error(ErrorKind::kUsage, "'{}' is not like rate=10mbit", words[i]);
    }
    yaml += words[i].substr(0, at) + ": " + words[i].substr(at + 1) + "\n";
  }
  MUSTER_TRY(const auto hosts, muster::lab::parse_hosts_file(yaml, "link"));
  return hosts[0].link;
}

Result<Json> obey(Lab& lab, const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  if ((command == "cut" || command == "heal") && words.size() == 3) {
    MUSTER_TRY(const size_t a, lab.find(words[1]));
    MUSTER_TRY(const size_t b, lab.find(words[2]));
    MUSTER_RETURN_IF_ERROR(command == "cut" ? lab.cut(a, b) : lab.heal(a, b));
    return Json::object();
  }
  if (command == "link" && words.size() >= 2) {
    MUSTER_TRY(const size_t host, lab.find(words[1]));
    MUSTER_TRY(const auto link, read_link(words));
    MUSTER_RETURN_IF_ERROR(lab.set_link(host, link));
    return Json::object();
  }
  if (command == "bytes" && words.size() == 2) {
    MUSTER_TRY(const size_t host, lab.find(words[1]));
    MUSTER_TRY(const auto traffic, lab.traffic(host));
    return Json{{"sent", traffic.sent}, {"received", traffic.received}};
  }
  return Error(ErrorKind::kUsage, "there is no such command; there are cut, heal, link and bytes");
}

Result<std::unique_ptr<Lab>> make(const std::string& file) {
  const auto files = muster::posix_file_system();
  MUSTER_TRY(auto hosts, muster::lab::read_hosts_file(*files, file));
  MUSTER_TRY(const auto scratch, muster::ScratchDirectory::make("muster-lab"));
  return Lab::make(std::move(hosts), scratch.path());
}

Status serve(const std::string& file) {
  MUSTER_TRY(const auto lab, make(file));
  std::cout << describe(*lab).dump() << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    const auto answer = obey(*lab, words);
    const Json out = answer.ok() ? *answer : Json{{"error", answer.error().message()}};
    std::cout << out.dump() << std::endl;
  }
  return {};
}

}  // namespace

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: muster-lab FILE\n";
    return 2;
  }
  const Status done = serve(words[1]);
  if (done.ok()) return 0;
  std::cerr << "muster-lab: " << done.error().message() << "\n";
  return static_cast<int>(done.error().kind());
}

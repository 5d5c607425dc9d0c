// muster-server: a parameter server of a job (docs/servers.md). The launcher starts these, with the
// address of its registry; for `muster coordinator` they are started by hand or by a cluster's
// launcher, with the coordinator's address.
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

#include "muster/base/address.h"
#include "muster/base/boot_clock.h"
#include "muster/base/fault_point.h"
#include "muster/config/units.h"
#include "muster/ps/cold/rocks_rows.h"
#include "muster/ps/net/server.h"
#include "muster/roster/coordinator.h"

namespace {

using muster::Error;
using muster::ErrorKind;
using muster::ps::Server;
using muster::ps::ServerOptions;

constexpr const char* kHelp =
    R"(muster-server: holds a part of a job's parameters (docs/servers.md)

  muster-server --coordinator HOST:PORT --id NAME [--host HOST] [--listen HOST:PORT] [--memory 4GiB]
                [--disk DIRECTORY]

`muster train` starts the servers of its job itself. A job of `muster coordinator` needs as many as
tables.servers says, started anywhere. Servers can join at any time; one that ended should be
started again with the same --id. SIGTERM ends a server; what it holds is with another one, if
tables.copies is 2 and all others are ready (`muster status`).

  --coordinator HOST:PORT  of the job, which knows where servers register
  --registry HOST:PORT     where servers register, instead of --coordinator
  --id NAME                of this server; no other server of the job has it
  --host HOST              by which others reach this machine (its address towards the coordinator);
                           the two copies of a row are on different hosts, if there are several
  --listen HOST:PORT       where it listens (that of --host, any free port)
  --memory SIZE            for rows, at most (all there is)
  --disk DIRECTORY         where rows go that do not fit into --memory
)";

// Of the memory, for rows that are about to be written to disk or were read from it lately.
constexpr size_t kPartForDisk = 8;
constexpr size_t kLeastWithDisk = size_t{4} << 20;

volatile sig_atomic_t asked_to_stop = 0;

// The directory is that of one incarnation: a server that begins again begins empty.
muster::Status use_disk(const std::string& disk, ServerOptions& options) {
  if (options.memory == ServerOptions().memory || options.memory < kLeastWithDisk) {
    return Error(ErrorKind::kUsage,
                 "--disk {}: say with --memory from which size on rows go there, of 4MiB at least",
                 disk);
  }
  const size_t memory = options.memory / kPartForDisk;
  options.memory -= memory;
  options.open_disk = [disk, memory, rows = options.memory,
                       tell = options.tell](const muster::ps::ServerKey& self) {
    const auto name = fmt::format("{}-{:016x}", self.id, self.incarnation);
    if (tell) tell(fmt::format("rows that do not fit into {} MiB go to '{}'", rows >> 20, disk));
    return muster::ps::open_rocks({disk, name, memory});
  };
  return {};
}

// As it was written: `coordinator` is not asked yet, and what may be left out is empty.
struct CommandLine {
  ServerOptions options;
  std::string coordinator;
  std::string disk;
};

muster::Result<CommandLine> parse(int argc, char** argv) {
  CommandLine line;
  ServerOptions& options = line.options;
  options.host.clear();
  options.listen.clear();
  const option known[] = {{"registry", required_argument, nullptr, 'r'},
                          {"coordinator", required_argument, nullptr, 'c'},
                          {"id", required_argument, nullptr, 'i'},
                          {"listen", required_argument, nullptr, 'l'},
                          {"host", required_argument, nullptr, 'o'},
                          {"memory", required_argument, nullptr, 'm'},
                          {"disk", required_argument, nullptr, 'd'},
                          {"help", no_argument, nullptr, 'h'},
                          {}};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  for (int letter = 0; (letter = getopt_long(argc, argv, "h", known, nullptr)) != -1;) {
    switch (letter) {
      case 'r':
        options.registry = optarg;
        break;
      case 'c':
        line.coordinator = optarg;
        break;
      case 'i':
        options.id = optarg;
        break;
      case 'l':
        options.listen = optarg;
        break;
      case 'o':
        options.host = optarg;
        break;
      case 'm': {
        const auto bytes = muster::config::parse_bytes(optarg);
        if (!bytes || *bytes <= 0) {
          return Error(ErrorKind::kUsage, "--memory {}: write it as 512MiB or 4GB", optarg);
        }
        options.memory = static_cast<size_t>(*bytes);
        break;
      }
      case 'd':
        line.disk = optarg;
        break;
      case 'h':
        fmt::print("{}", kHelp);
        std::exit(0);  // NOLINT(concurrency-mt-unsafe): there is one thread
      default:
        return Error(ErrorKind::kUsage, "see muster-server --help");
    }
  }
  if (optind < argc) return Error(ErrorKind::kUsage, "'{}' is not an option", argv[optind]);
  if (options.id.empty()) {
    return Error(
        ErrorKind::kUsage,
        "--id is missing: a name for this server; use the same one when you start it again");
  }
  if (options.registry.empty() == line.coordinator.empty()) {
    return Error(ErrorKind::kUsage, "give --coordinator or --registry, one of them");
  }
  return line;
}

// Where the servers of a coordinator's job register.
muster::Result<std::string> ask_coordinator(const std::string& address) {
  MUSTER_TRY(const auto status, muster::roster::fetch_status(address, std::chrono::seconds(5)));
  if (!status.ended.empty()) {
    return Error(ErrorKind::kUsage, "{} has ended: {}", status.job, status.ended);
  }
  if (status.servers.empty()) {
    return Error(ErrorKind::kUsage, "{} needs no parameter servers: it has no tables", status.job);
  }
  return status.servers;
}

muster::Result<ServerOptions> complete(CommandLine line) {
  ServerOptions options = std::move(line.options);
  if (options.registry.empty()) {
    MUSTER_TRY(options.registry, ask_coordinator(line.coordinator));
  }
  if (options.host.empty()) {
    MUSTER_TRY(options.host, muster::own_address_towards(muster::host_of(options.registry)));
  }
  if (options.listen.empty()) options.listen = muster::bracketed(options.host) + ":0";
  options.tell = [id = options.id](const std::string& what) {
    fmt::print(stderr, "muster-server {}: {}\n", id, what);
  };
  if (!line.disk.empty()) MUSTER_RETURN_IF_ERROR(use_disk(line.disk, options));
  return options;
}

int fail(const std::string& id, const Error& error) {
  fmt::print(stderr, "muster-server{}{}: {}\n", id.empty() ? "" : " ", id, error.message());
  return static_cast<int>(error.kind());
}

// A server that its launcher has started ends with it (launch/process.h).
void follow_launcher() {
  const char* const launcher = std::getenv("MUSTER_LAUNCHER_PID");  // NOLINT(concurrency-mt-unsafe)
  if (launcher == nullptr || std::to_string(getppid()) != launcher) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(getppid()) != launcher) raise(SIGTERM);
}

// Copies of shards pass through several buffers of some megabytes each. By default each of them is
// mapped and unmapped, and its pages are zeroed by the kernel every time, which takes longer than
// copying. Rows are not in this memory (ps/slabs.h).
void keep_freed_memory() {
  constexpr int kMegabyte = 1 << 20;
  // NOLINTBEGIN(concurrency-mt-unsafe): there is one thread
  mallopt(M_MMAP_THRESHOLD, 32 * kMegabyte);  // more is not possible
  mallopt(M_TRIM_THRESHOLD, 256 * kMegabyte);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace

int main(int argc, char** argv) {
  auto line = parse(argc, argv);
  if (!line.ok()) return fail("", line.error());
  auto options = complete(*std::move(line));
  if (!options.ok()) return fail("", options.error());
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    action.sa_handler = [](int) { asked_to_stop = 1; };
    sigaction(number, &action, nullptr);
  }
  follow_launcher();
  keep_freed_memory();
  muster::arm_fault_points();
  options->stopped = [] { return asked_to_stop != 0; };
  const muster::BootClock clock;
  while (true) {
    Server server(*options, clock);
    const auto end = server.run();
    if (!end.ok()) return fail(options->id, end.error());
    if (*end == Server::End::kStopped) return 0;
    options->tell("restarts without rows");
  }
}

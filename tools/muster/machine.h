// What this machine is, as far as training cares. Only reads, but for measure_disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/result.h"

namespace muster::cli {

struct Machine {
  std::string processor;                  // "Intel(R) Xeon(R) ..."; empty: not told
  std::vector<std::string> instructions;  // those that training gains by: "AVX2", "AVX-512", "AMX"
  int cores = 0;                          // of the machine
  int usable_cores = 0;                   // by affinity
  double quota = 0;                       // cores that the container may use; 0: no limit
  double load = 0;                        // processes that wanted to run, last minute
  uint64_t memory = 0;                    // bytes
  uint64_t memory_free = 0;               // bytes that a new process can get
  uint64_t memory_limit = 0;              // of the container; 0: none

  // Cores that lanes can really use.
  double effective_cores() const;
};

Machine look_at_machine();

// The same from the texts of /proc/cpuinfo, /proc/meminfo and /proc/loadavg, and of the control
// group's cpu.max and memory.max. What cannot be read stays at its default.
struct MachineTexts {
  std::string cpuinfo, meminfo, loadavg, cpu_max, memory_max;
};
Machine parse_machine(const MachineTexts& texts);

struct Disk {
  std::string path;  // the directory that was measured, the nearest that exists
  uint64_t free_bytes = 0;
  double sync_ms = 0;         // median time to write 4 KiB so that it survives a power cut
  double write_mb_per_s = 0;  // 16 MiB, synced
  std::string problem;        // a sentence: it cannot be written; then the figures mean nothing
};

// Writes a scratch file (16 MiB) in the directory, or its nearest parent that exists, and removes
// it.
Disk measure_disk(const std::string& directory);

}  // namespace muster::cli

#include "tools/muster/diagnosis.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "muster/base/stable_sort.h"
#include "muster/base/text.h"

namespace muster::cli {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMegabyte = 1'000'000;
constexpr uint64_t kTightDisk = 1'000 * kMegabyte;
constexpr uint64_t kFullDisk = 20 * kMegabyte;  // less than one small checkpoint
constexpr uint64_t kTightMemory = 2'000 * kMegabyte;
constexpr uint64_t kNoMemory = 500 * kMegabyte;  // libtorch alone, and a small model
constexpr double kSlowSync = 50;                 // ms
constexpr double kPoorScaling = 0.6;             // of what the cores promise

std::string text_at(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return "";
  return at->is_string() ? at->get<std::string>() : at->is_null() ? "" : at->dump();
}

double number_at(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

uint64_t memory_to_use(const Machine& machine) {
  return machine.memory_limit > 0 ? std::min(machine.memory_limit, machine.memory_free)
                                  : machine.memory_free;
}

void advise_on_disk(const Disk& disk, std::vector<Advice>& advice) {
  if (!disk.problem.empty()) {
    advice.push_back({true, disk.problem +
                                "; runs go there: give --runs another place, and the job "
                                "too (-s runs=DIR)"});
    return;
  }
  if (disk.free_bytes < kFullDisk) {
    advice.push_back(
        {true, fmt::format("the disk at {} is full ({} free): free some, or keep runs "
                           "elsewhere (-s runs=DIR)",
                           disk.path, human_bytes(static_cast<double>(disk.free_bytes)))});
  } else if (disk.free_bytes < kTightDisk) {
    advice.push_back(
        {false, fmt::format("only {} are free at {}: checkpoints of a large model may "
                            "not fit; keep fewer (-s checkpoint.keep=1)",
                            human_bytes(static_cast<double>(disk.free_bytes)), disk.path)});
  }
  if (disk.sync_ms > kSlowSync) {
    advice.push_back(
        {false, fmt::format("making a small write safe takes {:.0f} ms at {} (a network "
                            "disk?): save less often, or keep runs on a local disk",
                            disk.sync_ms, disk.path)});
  }
}

void advise_on_machine(const Machine& machine, std::vector<Advice>& advice) {
  const uint64_t memory = memory_to_use(machine);
  if (memory > 0 && memory < kNoMemory) {
    advice.push_back(
        {true, fmt::format("only {} of memory can be had: end other programs, or raise "
                           "the container's limit",
                           human_bytes(static_cast<double>(memory)))});
  } else if (memory > 0 && memory < kTightMemory) {
    advice.push_back({false, fmt::format("{} of memory is little: small models only",
                                         human_bytes(static_cast<double>(memory)))});
  }
  const double cores = machine.effective_cores();
  if (machine.quota > 0 && machine.quota < machine.usable_cores) {
    advice.push_back(
        {false,
         fmt::format("the container may use {:.1f} of {} cores: set -s threads={:.0f}, so that "
                     "lanes do not wait for each other",
                     machine.quota, machine.usable_cores,
                     std::max(1.0, std::floor(machine.quota)))});
  }
  if (machine.load > 0.5 * cores) {
    advice.push_back(
        {false, fmt::format("other programs are busy here (load {:.1f} on {:.0f} cores): "
                            "training gets what is left, and the speeds above are low",
                            machine.load, cores)});
  }
  const bool vector_units = std::ranges::any_of(
      machine.instructions, [](const auto& name) { return name == "AVX2" || name == "NEON"; });
  if (!vector_units && !machine.processor.empty()) {
    advice.push_back({false, "this processor has no AVX2: training works, slowly"});
  }
}

void advise_on_probe(const Findings& findings, std::vector<Advice>& advice) {
  if (!findings.probe) {
    advice.push_back({true, findings.probe_problem});
    return;
  }
  const Probe& probe = *findings.probe;
  // Of the file alone: a wheel's directories have torch in their names.
  if (probe.gloo.find("torch", probe.gloo.rfind('/') + 1) != std::string::npos) {
    advice.push_back({true, fmt::format("Gloo's code comes from libtorch ({}) and not from the "
                                        "system's libgloo: link gloo before torch",
                                        probe.gloo)});
  }
  const double promised = probe.gflops_one_lane * probe.lane_threads;
  const bool idle = findings.machine.load <= 0.5 * findings.machine.effective_cores();
  if (idle && probe.lane_threads > 1 && probe.gflops_all_lanes < kPoorScaling * promised) {
    advice.push_back(
        {false, fmt::format("{} lanes at once are only {:.1f} times as fast as one: the "
                            "cores share something (hyper-threads, a power limit); try "
                            "-s threads={}",
                            probe.lane_threads,
                            probe.gflops_all_lanes / std::max(1e-9, probe.gflops_one_lane),
                            std::max(1, probe.lane_threads / 2))});
  }
}

}  // namespace

Result<Probe> parse_probe(std::string_view json) {
  const auto object = Json::parse(json, nullptr, false);
  if (!object.is_object()) {
    return Error(ErrorKind::kInternal,
                 "muster-worker probe did not answer with one JSON object; are muster and "
                 "muster-worker of the same version?");
  }
  Probe probe;
  probe.torch_version = text_at(object, "torch_version");
  probe.gloo = text_at(object, "gloo");
  probe.capability = text_at(object, "capability");
  probe.fingerprint = text_at(object, "fingerprint");
  probe.mkl_cbwr = text_at(object, "mkl_cbwr");
  if (const auto kernels = object.find("kernels");
      kernels != object.end() && kernels->is_object()) {
    for (const auto& [name, hash] : kernels->items()) {
      if (hash.is_string()) probe.kernels[name] = hash.get<std::string>();
    }
  }
  probe.gflops_one_lane = number_at(object, "gflops_one_lane");
  probe.gflops_all_lanes = number_at(object, "gflops_all_lanes");
  probe.lane_threads = static_cast<int>(number_at(object, "lane_threads"));
  probe.first_step_ms = number_at(object, "first_step_ms");
  return probe;
}

std::vector<Advice> advise(const Findings& findings) {
  std::vector<Advice> advice;
  advise_on_probe(findings, advice);
  advise_on_disk(findings.disk, advice);
  advise_on_machine(findings.machine, advice);
  partition_stable(advice, &Advice::fatal);  // what stops training first
  return advice;
}

std::string verdict(const std::vector<Advice>& advice) {
  const auto fatal = std::ranges::count_if(advice, &Advice::fatal);
  if (fatal > 0) return "This machine cannot train yet: see what to change above.";
  if (!advice.empty()) return "This machine can train; see above what would make it better.";
  return "This machine can train.";
}

}  // namespace muster::cli

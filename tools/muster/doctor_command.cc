#include <algorithm>

#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/load.h"

#include "tools/muster/commands.h"
#include "tools/muster/diagnosis.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/job_timing.h"
#include "tools/muster/machine.h"
#include "tools/muster/text_table.h"
#include "tools/muster/version.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

Result<Probe> ask_worker(const std::string& given) {
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(given)));
  MUSTER_TRY(const auto end, capture_worker(worker, {"probe"}));
  const auto last_line = [&] { return split(std::string(trim(end.errors)), '\n').back(); };
  if (end.signal != 0 || end.exit_code != 0) {
    const auto death = exit_message(end, "the worker", "");
    return Error(
        ErrorKind::kMachine, "{} does not work: {}{}", worker, last_line(),
        death ? " (" + death->sentence + ")" : fmt::format(" (exit code {})", end.exit_code));
  }
  return parse_probe(end.output);
}

std::string bytes(uint64_t value) { return human_bytes(static_cast<double>(value)); }

std::string memory_text(const Machine& machine) {
  std::string text = fmt::format("{}, {} free", bytes(machine.memory), bytes(machine.memory_free));
  if (machine.memory_limit > 0) text += fmt::format(", limited to {}", bytes(machine.memory_limit));
  return text;
}

std::string cores_text(const Machine& machine) {
  std::string text = fmt::format("{} usable of {}", machine.usable_cores, machine.cores);
  if (machine.quota > 0) text += fmt::format(", limited to {:.1f}", machine.quota);
  return text + fmt::format(", load {:.1f}", machine.load);
}

std::string disk_text(const Disk& disk) {
  if (!disk.problem.empty()) return disk.problem;
  return fmt::format("{}: {} free, {:.0f} MB/s, a safe write takes {:.1f} ms", disk.path,
                     bytes(disk.free_bytes), disk.write_mb_per_s, disk.sync_ms);
}

void add_probe(const Probe& probe, TextTable& table) {
  table.add({"libtorch", fmt::format("{}, kernels for {}", probe.torch_version, probe.capability)});
  table.add({"Gloo", probe.gloo});
  table.add(
      {"numerics", fmt::format("{} ({} kernels{})", probe.fingerprint, probe.kernels.size(),
                               probe.mkl_cbwr.empty() ? "" : ", MKL_CBWR=" + probe.mkl_cbwr)});
  table.add(
      {"speed", fmt::format("{:.0f} GFLOP/s in one lane, {:.0f} in {} at once (fp32 matmul)",
                            probe.gflops_one_lane, probe.gflops_all_lanes, probe.lane_threads)});
  if (probe.first_step_ms > 0) {
    table.add(
        {"first step", fmt::format("{:.0f} ms after the worker's start", probe.first_step_ms)});
  }
}

// For a person who waits.
void tell_trial(const Arrangement& trial, Console& console) {
  if (console.width() == 0) return;
  console.aside(fmt::format("trying lanes: {}, threads_per_lane: {} ...", trial.lanes,
                            trial.threads_per_lane));
}

void print_timings(const std::vector<Timing>& timings, Console& console) {
  if (timings.empty()) return;
  using Align = TextTable::Align;
  TextTable table({{"lanes", Align::kRight},
                   {"threads_per_lane", Align::kRight},
                   {"a step takes", Align::kRight},
                   {""}});
  for (const auto& timing : timings) {
    table.add({fmt::format("{}", timing.arrangement.lanes),
               fmt::format("{}", timing.arrangement.threads_per_lane),
               fmt::format("{:.1f} ms", 1e3 * timing.step_seconds),
               &timing == &timings.front() ? "as the job says" : ""});
  }
  console.line("");
  console.out(table.render(console));
}

Json timings_json(const std::vector<Timing>& timings) {
  Json all = Json::array();
  for (const auto& timing : timings) {
    all.push_back({{"lanes", timing.arrangement.lanes},
                   {"threads_per_lane", timing.arrangement.threads_per_lane},
                   {"step_seconds", timing.step_seconds}});
  }
  return all;
}

Result<std::vector<Timing>> time_job(const DoctorArguments& arguments, const Machine& machine,
                                     Context& context) {
  if (arguments.job.empty()) return std::vector<Timing>();
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(const auto loaded, config::load_job(sources));
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  const int cores = std::max(1, static_cast<int>(machine.effective_cores()));
  return time_steps(loaded.job, worker, cores,
                    [&](const Arrangement& trial) { tell_trial(trial, context.console); });
}

void print_table(const Findings& findings, const std::vector<Timing>& timings,
                 const std::vector<Advice>& advice, Console& console) {
  const Machine& machine = findings.machine;
  TextTable table({{""}, {"", TextTable::Align::kLeft, true}});
  table.add({"muster", fmt::format("{} {}", kVersion, kCommit)});
  table.add({"processor", machine.processor.empty() ? "not told" : machine.processor});
  table.add({"instructions",
             machine.instructions.empty() ? "none of note" : join_words(machine.instructions)});
  table.add({"cores", cores_text(machine)});
  table.add({"memory", memory_text(machine)});
  table.add({"runs", disk_text(findings.disk)});
  if (findings.probe) add_probe(*findings.probe, table);
  console.out(table.render(console));
  print_timings(timings, console);
  if (!advice.empty()) console.line("");
  for (const auto& each : advice) {
    console.line(fmt::format(
        "{} {}",
        console.painted(each.fatal ? Paint::kBad : Paint::kWarning, each.fatal ? "x" : "!"),
        each.text));
  }
  const bool fatal = std::ranges::any_of(advice, &Advice::fatal);
  console.line("\n" + console.painted(fatal ? Paint::kBad : Paint::kGood, verdict(advice)));
}

Json findings_json(const Findings& findings, const std::vector<Advice>& advice) {
  const Machine& machine = findings.machine;
  const Disk& disk = findings.disk;
  Json object = {{"can_train", std::ranges::none_of(advice, &Advice::fatal)},
                 {"version", kVersion}};
  object["machine"] = {{"processor", machine.processor},
                       {"instructions", machine.instructions},
                       {"cores", machine.cores},
                       {"usable_cores", machine.usable_cores},
                       {"effective_cores", machine.effective_cores()},
                       {"load", machine.load},
                       {"memory", machine.memory},
                       {"memory_free", machine.memory_free},
                       {"memory_limit", machine.memory_limit}};
  object["disk"] = {{"path", disk.path},
                    {"free_bytes", disk.free_bytes},
                    {"sync_ms", disk.sync_ms},
                    {"write_mb_per_s", disk.write_mb_per_s}};
  if (!disk.problem.empty()) object["disk"]["problem"] = disk.problem;
  object["worker"] = Json();
  if (findings.probe) {
    const Probe& probe = *findings.probe;
    object["worker"] = {{"torch_version", probe.torch_version},
                        {"gloo", probe.gloo},
                        {"capability", probe.capability},
                        {"fingerprint", probe.fingerprint},
                        {"kernels", probe.kernels},
                        {"gflops_one_lane", probe.gflops_one_lane},
                        {"gflops_all_lanes", probe.gflops_all_lanes},
                        {"lane_threads", probe.lane_threads},
                        {"first_step_ms", probe.first_step_ms},
                        {"mkl_cbwr", probe.mkl_cbwr}};
  }
  object["advice"] = Json::array();
  for (const auto& each : advice) {
    object["advice"].push_back({{"fatal", each.fatal}, {"text", each.text}});
  }
  object["verdict"] = verdict(advice);
  return object;
}

}  // namespace

Outcome run(const DoctorArguments& arguments, Context& context) {
  Findings findings;
  findings.machine = look_at_machine();  // first: what follows is load of our own
  findings.disk = measure_disk(arguments.runs);
  auto probe = ask_worker(arguments.worker);
  if (probe.ok()) {
    findings.probe = *std::move(probe);
  } else if (probe.error().kind() == ErrorKind::kUsage) {
    return std::move(probe).error();
  } else {
    findings.probe_problem = probe.error().message();
  }
  auto advice = advise(findings);
  std::vector<Timing> timings;
  if (std::ranges::none_of(advice, &Advice::fatal)) {
    MUSTER_TRY(timings, time_job(arguments, findings.machine, context));
    if (const auto lanes = advise_lanes(timings)) advice.push_back({false, *lanes});
  }
  if (arguments.format == Format::kJson) {
    Json object = findings_json(findings, advice);
    if (!arguments.job.empty()) object["steps"] = timings_json(timings);
    context.console.line(object.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_table(findings, timings, advice, context.console);
  }
  const bool fatal = std::ranges::any_of(advice, &Advice::fatal);
  return fatal ? static_cast<int>(ErrorKind::kMachine) : 0;
}

}  // namespace muster::cli

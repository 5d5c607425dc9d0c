#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/config/load.h"
#include "muster/config/units.h"
#include "muster/lab/hosts_file.h"

#include "tools/muster/commands.h"
#include "tools/muster/job_sources.h"
#include "tools/muster/job_timing.h"
#include "tools/muster/machines.h"
#include "tools/muster/plan.h"
#include "tools/muster/text_table.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string milliseconds(double seconds) {
  return fmt::format("{} ms", seconds < 0.01  ? fmt::format("{:.2f}", 1e3 * seconds)
                              : seconds < 0.1 ? fmt::format("{:.1f}", 1e3 * seconds)
                                              : with_commas(static_cast<uint64_t>(1e3 * seconds)));
}

std::string name_of(const Setting& setting) {
  return setting.sync.empty() ? "as the job is" : setting.sync;
}

void print_plan(const std::vector<Prediction>& predictions, size_t choice, double batch,
                Console& console) {
  using Align = TextTable::Align;
  TextTable table({{""},
                   {"setting", Align::kLeft, true},
                   {"step", Align::kRight},
                   {"samples/s", Align::kRight},
                   {"sent a step", Align::kRight},
                   {"memory", Align::kRight},
                   {"lost at most", Align::kRight}});
  for (size_t i = 0; i < predictions.size(); ++i) {
    const auto& [setting, cost] = predictions[i];
    table.add({i == choice ? ">" : "", name_of(setting), milliseconds(cost.step_seconds),
               fmt::format("{:.0f}", batch / cost.step_seconds), human_bytes(cost.bytes),
               human_bytes(cost.memory),
               fmt::format("{} step{}", cost.at_stake, cost.at_stake == 1 ? "" : "s")});
  }
  console.out(table.render(console));
}

Json plan_json(const std::vector<Prediction>& predictions, size_t choice, double batch) {
  Json all = Json::array();
  for (size_t i = 0; i < predictions.size(); ++i) {
    const auto& [setting, cost] = predictions[i];
    all.push_back({{"sync", setting.sync},
                   {"recommended", i == choice},
                   {"step_seconds", cost.step_seconds},
                   {"samples_per_second", batch / cost.step_seconds},
                   {"bytes_per_step", cost.bytes},
                   {"commit_bytes_per_step", cost.commit_bytes},
                   {"memory", cost.memory},
                   {"steps_at_stake", cost.at_stake}});
  }
  return all;
}

}  // namespace

namespace {

Result<Machines> machines_of(const PlanArguments& arguments, const config::Job& job,
                             const std::string& worker, Context& context) {
  if (!arguments.hosts.empty()) {
    const Trial trial = {.hosts = arguments.hosts,
                         .worker = arguments.worker,
                         .listen = arguments.listen,
                         .place = job.runs};
    return measure_hosts(job, trial, context);
  }
  const auto rate = lab::parse_rate(arguments.rate);
  if (!rate) {
    return Error(ErrorKind::kUsage, "--rate must be like 100mbit or 1gbit, not '{}'",
                 arguments.rate);
  }
  const auto delay = config::parse_duration(arguments.delay);
  if (!delay) {
    return Error(ErrorKind::kUsage, "--delay must be like 1ms or 0.02s, not '{}'", arguments.delay);
  }
  Machines machines = {.hosts = static_cast<int>(arguments.workers),
                       .network = {.rate = *rate / 8, .delay = *delay},
                       .rate = *rate};
  if (!arguments.step_time.empty()) {
    const auto step = config::parse_duration(arguments.step_time);
    if (!step || *step <= 0) {
      return Error(ErrorKind::kUsage, "--step-time must be like 90ms or 0.5s, not '{}'",
                   arguments.step_time);
    }
    machines.compute = *step;
  } else {
    if (context.console.width() > 0) context.console.aside("measuring a step for some seconds ...");
    const auto hosts = static_cast<int>(std::min(arguments.workers, job.lanes));
    MUSTER_TRY(machines.compute, time_alone(share_of(job, hosts), worker));
  }
  return machines;
}

}  // namespace

Outcome run(const PlanArguments& arguments, Context& context) {
  MUSTER_TRY(const auto sources, job_sources(arguments.job, arguments.set, context.files));
  MUSTER_TRY(auto loaded, config::load_job(sources));
  config::Job& job = loaded.job;
  if (job.sync.strategy == "auto") job.sync.strategy = "lockstep";
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(arguments.worker)));
  MUSTER_TRY(const auto model, size_of_model(job, arguments.job, worker, context));
  MUSTER_TRY(auto machines, machines_of(arguments, job, worker, context));
  const auto hosts = static_cast<int>(std::min<int64_t>(machines.hosts, job.lanes));
  if (hosts < machines.hosts) {
    context.console.warning(fmt::format(
        "the job has {} lanes, so only {} of {} workers would have something to do; raise lanes "
        "(-s lanes={})",
        hosts, hosts, machines.hosts, machines.hosts));
  }
  machines.hosts = hosts;
  const auto predictions = predict(job, model, machines);
  const size_t choice = recommended(predictions);
  const auto batch = static_cast<double>(job.batch);
  const auto reason = reason_for(predictions, choice, machines.compute);
  if (arguments.format == Format::kJson) {
    const Json object = {{"job", arguments.job},
                         {"workers", hosts},
                         {"rate", machines.rate},
                         {"delay", machines.network.delay},
                         {"parameters", model.parameters},
                         {"compute_seconds", machines.compute},
                         {"settings", plan_json(predictions, choice, batch)},
                         {"reason", reason}};
    context.console.line(object.dump(2));
    return 0;
  }
  context.console.line(fmt::format(
      "{}: {} parameters on {} hosts with {} each way and {} delay; a step without the network: {}",
      arguments.job, with_commas(static_cast<uint64_t>(model.parameters)), hosts,
      rate_text(machines.rate), milliseconds(machines.network.delay),
      milliseconds(machines.compute)));
  context.console.line("");
  print_plan(predictions, choice, batch, context.console);
  context.console.line("");
  const auto& sync = predictions[choice].setting.sync;
  context.console.line(choice == 0 ? "Recommended: as the job is"
                                   : "Recommended, in the job file:\n  sync: " + sync);
  context.console.line(reason + ".");
  return 0;
}

}  // namespace muster::cli

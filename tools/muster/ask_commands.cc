// eval, replay and predict: the worker knows, and prints.
#include "tools/muster/commands.h"
#include "tools/muster/find_run.h"
#include "tools/muster/predict_command.h"
#include "tools/muster/worker_process.h"

namespace muster::cli {
namespace {

std::string name_of(Format format) { return format == Format::kJson ? "json" : "table"; }

void add(std::vector<std::string>& arguments, const char* option, const std::string& value) {
  if (value.empty()) return;
  arguments.emplace_back(option);
  arguments.push_back(value);
}

Outcome ask(const std::string& given_worker, Format format,
            const std::vector<std::string>& arguments, Context& context) {
  MUSTER_TRY(const auto worker, find_worker(WorkerPlaces::of_process(given_worker)));
  MUSTER_RETURN_IF_ERROR(context.console.flush());
  MUSTER_TRY(const auto end, run_worker(worker, arguments));
  const auto death = exit_message(end, "the worker", "");
  if (!death) return end.exit_code;
  context.console.error(death->kind, death->sentence, format == Format::kJson);
  return death->exit_code;
}

Result<std::vector<std::string>> start_of(const std::string& command,
                                          const track::RunDirectory& run,
                                          const std::string& checkpoint, Format format,
                                          FileSystem& files) {
  std::string which = checkpoint;
  if (which.empty()) {
    MUSTER_TRY(which, default_checkpoint(run, files));
  }
  return std::vector<std::string>{command, "--run", run.path(),     "--checkpoint",
                                  which,   "-o",    name_of(format)};
}

}  // namespace

Outcome run(const EvalArguments& arguments, Context& context) {
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  MUSTER_TRY(const auto job, load_run_job(run, arguments.set, {"data.test", "eval", "threads"},
                                          "the model is measured as it was trained", context.files,
                                          {arguments.data, arguments.data_format}));
  if (job.data.test.format.empty()) {
    return Error(ErrorKind::kUsage, "{} has no test data; name some with --data", run_name(run));
  }
  MUSTER_TRY(auto words,
             start_of("eval", run, arguments.checkpoint, arguments.format, context.files));
  add(words, "--data", arguments.data);
  add(words, "--format", arguments.data_format);
  for (const auto& set : arguments.set) add(words, "-s", set);
  return ask(arguments.worker, arguments.format, words, context);
}

Outcome run(const ReplayArguments& arguments, Context& context) {
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  const std::string which = arguments.checkpoint.empty() ? "newest" : arguments.checkpoint;
  MUSTER_TRY(const auto words, start_of("replay", run, which, arguments.format, context.files));
  return ask(arguments.worker, arguments.format, words, context);
}

Outcome run(const PredictArguments& arguments, Context& context) {
  if (!arguments.out.empty()) return predict_to_file(arguments, context);
  MUSTER_TRY(const auto run, find_run(arguments.run, context.files));
  MUSTER_TRY(const auto job, load_predict_job(arguments, run, context.files));
  MUSTER_TRY(auto words,
             start_of("predict", run, arguments.checkpoint, arguments.format, context.files));
  add_predict_words(arguments, words);
  add(words, "--samples", arguments.samples);
  add(words, "--from", arguments.from);
  if (arguments.prompt) {
    words.emplace_back("--prompt");
    words.push_back(*arguments.prompt);
  }
  add(words, "--length", arguments.length);
  add(words, "--temperature", arguments.temperature);
  add(words, "--seed", arguments.seed);
  return ask(arguments.worker, arguments.format, words, context);
}

}  // namespace muster::cli

#include "tools/muster/help.h"

#include <array>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace muster::cli {
namespace {

using Examples = std::pair<std::string_view, std::string_view>;

constexpr std::array kExamples = {
    Examples{"train", R"(  muster train examples/lenet-mnist.yaml
  muster train job.yaml -s optimizer.lr=0.01 -s passes=5
  muster train job.yaml --workers 4               four processes, the same bits
  muster train job.yaml --hosts hosts.yaml        on other machines, over ssh
  muster train job.yaml --json | tail -n 1        the result, for a program

Ctrl-C saves and leaves (exit code 130); `muster resume` goes on, and ends with the same bits.)"},
    Examples{"resume", R"(  muster resume                                   the latest run
  muster resume lenet-mnist-20260301-123005
  muster resume latest -s passes=10               train longer
  muster resume latest --workers 2                with another number of workers
  muster resume s3://bucket/lenet-1               on another machine, if the job has checkpoint.to

A run that ended is only told about. Options that decide the bits cannot change on the way, nor
can the data (--accept-other-data) or the kind of machine (-s numerics=tolerant). With --set:
passes, steps, time, threads, workers, audit, numerics, checkpoint.to, data.memory, data.requests,
data.cache, data.cache_size, data.on_damage, and where the same data is: data.train.path,
data.test.path, data.index.)"},
    Examples{"verify", R"(  muster verify examples/lenet-mnist.yaml
  muster verify job.yaml --workers 4 --faults kill:20,suspend:5,leave:5,join:5 --seed 3
  muster verify job.yaml --faults kill@before-commit:5,kill@checkpoint:5,pair:3,most:2

Trains the job undisturbed on one worker, then on several with these faults at random moments, and
compares weights, ledger and metrics. Exit code 0: equal; 9: not.
Kinds of faults: kill, kill@POINT, suspend, leave, join, hang, pair, most, cut, slow-disk, pause,
restart, flip, lie, kill-server, kill-server@POINT, suspend-server. docs/several-workers.md explains them.)"},
    Examples{"status", R"(  muster status                                   of the latest run
  muster status lenet-mnist-20260301-123005 --watch
  muster status 10.0.0.1:7000 -o json)"},
    Examples{"join",
             R"(  muster join                                     one more worker for the latest run
  muster join /mnt/shared/runs/latest             on another machine
  muster join 10.0.0.1:7000 --run /mnt/shared/runs/latest
  muster join 10.0.0.1:7000 --run runs/lenet-1    makes it, if the job has checkpoint.to

Ctrl-C takes this worker out at the next step; the job goes on.)"},
    Examples{"coordinator", R"(  muster coordinator job.yaml --listen 10.0.0.1:7000
  muster coordinator runs/latest --listen 10.0.0.1:7000     go on with a run

It makes a run directory, and trains nothing by itself: add workers with `muster join`.)"},
    Examples{"eval", R"(  muster eval latest
  muster eval latest --checkpoint newest -o json
  muster eval latest --data 's3://bucket/test/*.tar'
  muster eval lenet -s data.test.images=other-images.gz -s data.test.labels=other-labels.gz)"},
    Examples{"replay", R"(  muster replay latest
  muster replay latest --checkpoint 400 -o json

For runs with sync.strategy: server, which depend on the order in which pushes came. That order is
part of a checkpoint; from it and the job the run is computed again, on one worker. Exit code 0: the
same bits; 9: not.)"},
    Examples{"predict", R"(  muster predict latest --samples 0-9
  muster predict latest --from train --samples 42 -o json
  muster predict latest --data 'new-*.csv' --out predictions.csv --workers 4
  muster predict resnet --data photos --format images --no-labels --out classes.csv
  muster predict resnet --data 's3://bucket/photos/*.tar' --layer layer4 --out features.parquet
  muster predict gpt --prompt 'ROMEO:' --length 200 --temperature 0.8 --seed 1

If --out is interrupted, the same command continues. May change with -s: data.test, eval.batch,
threads, workers.restarts, data.memory, data.requests and data.cache.)"},
    Examples{"config", R"(  muster config check job.yaml
  muster config explain optimizer.lr)"},
    Examples{"config check", R"(  muster config check job.yaml
  muster config check job.yaml -s batch=64 --no-data)"},
    Examples{
        "config show",
        R"(  muster config show job.yaml > resolved.yaml     runs anywhere, with the same bits)"},
    Examples{"config explain", R"(  muster config explain optimizer.schedule
  muster config explain lanes)"},
    Examples{"config schema", R"(  muster config schema > job.schema.json
  (in an editor: # yaml-language-server: $schema=job.schema.json))"},
    Examples{"runs", R"(  muster runs list
  muster runs compare A B)"},
    Examples{"runs list", R"(  muster runs list
  muster runs list -o json | jq -r '.[] | select(.state == "died") | .name')"},
    Examples{"runs show", R"(  muster runs show
  muster runs show lenet-mnist-20260301-123005 -o json)"},
    Examples{"runs compare", R"(  muster runs compare lenet-1 lenet-2)"},
    Examples{"report", R"(  muster report
  muster report lenet-1 lenet-2 --out lenet.html
  muster report latest -o /tmp/report.html

One HTML file that loads nothing: curves, step times, workers with their lanes and faults, audits,
data, job and environment. A file that is no report is only replaced with --force.)"},
    Examples{"runs plot", R"(  muster runs plot
  muster runs plot lenet-1 lenet-2 --metric accuracy
  muster runs plot latest --metric seconds --metric lr
  muster runs plot latest -o json | jq '.[0].points')"},
    Examples{"runs fetch", R"(  muster runs fetch s3://bucket/lenet-1
  muster runs fetch /mnt/copies/lenet-1 --run-dir lenet

Makes a run directory of what a job sent to its checkpoint.to: job, metrics, the newest checkpoint
and the best one. `muster resume s3://bucket/lenet-1` does so too, and trains on.)"},
    Examples{"export", R"(  muster export latest --out lenet.safetensors
  muster export latest --checkpoint 500 --out lenet-500.safetensors --with-job
  muster export latest --checkpoint newest --since 500 --out change.safetensors)"},
    Examples{"data", R"(  muster data info job.yaml
  muster data index job.yaml --out indexes
  muster data check job.yaml
  muster data pack job.yaml --shuffle --out packed)"},
    Examples{"data index",
             R"(  muster data index job.yaml --out indexes       then: data.index: indexes
  muster data index job.yaml -s data.block=1MiB --out indexes -o json

Reads all data once. A training job without an index makes one itself, in its run directory.)"},
    Examples{"data info", R"(  muster data info job.yaml
  muster data info job.yaml -s data.window=256MiB)"},
    Examples{"data check", R"(  muster data check job.yaml

Exit code 0: all samples can be read; 4: some cannot, and each damaged part is named.)"},
    Examples{"data pack", R"(  muster data pack job.yaml --out packed
  muster data pack job.yaml --shuffle --format parquet --block 1MiB --out packed

Samples are stored as they are read: training on them gives the same bits. Prints what to write into
the job file. If it is interrupted, the same command continues after the last complete file.)"},
    Examples{"doctor", R"(  muster doctor
  muster doctor --runs /mnt/big/runs -o json)"},
    Examples{"plan", R"(  muster plan job.yaml --workers 4 --rate 100mbit --delay 10ms
  muster plan job.yaml --hosts hosts.yaml
  muster plan job.yaml --workers 1000 --rate 1gbit -o json)"},
    Examples{"completion", R"(  source <(muster completion bash)
  muster completion zsh > ~/.zfunc/_muster
  muster completion fish > ~/.config/fish/completions/muster.fish)"},
    Examples{"version", R"(  muster version
  muster version -o json)"},
};

// Positionals in the usage line, no group of positionals that only repeats it, examples last.
class Pages final : public CLI::Formatter {
 public:
  Pages() {
    column_width(30);
    label("Positionals", "Arguments");
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string line = "\nUsage: " + parents(app) + name;
    for (const auto* option : app->get_options()) {
      if (!option->get_positional()) continue;
      const bool many = option->get_expected_max() > 1;
      const std::string name = option->get_name(true) + (many ? ".." : "");
      line += option->get_required() ? " " + name : " [" + name + "]";
    }
    const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
    line += commands.empty() ? " [OPTIONS]" : " COMMAND [OPTIONS]";
    return line + "\n";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_size() == 0) return "";
    return " " + option->get_type_name();
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = option->get_name(positional, !positional);
    const size_t comma = name.find(',');
    return comma == std::string::npos ? name : name.replace(comma, 1, ", ");
  }
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode) const override {
    const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty()) return "";
    std::string text = "\nCommands:\n";
    for (const auto* command : commands) {
      text += fmt::format("  {:<12}{}\n", command->get_name(), command->get_description());
    }
    return text;
  }
  std::string make_description(const CLI::App* app) const override {
    const bool root = app->get_parent() == nullptr;
    return root ? app->get_description() + "\n"
                : fmt::format("{}{}: {}.\n", parents(app), app->get_name(), app->get_description());
  }

 private:
  static std::string parents(const CLI::App* app) {
    std::string names;
    for (app = app->get_parent(); app != nullptr; app = app->get_parent()) {
      names.insert(0, fmt::format("{} ", app->get_name()));
    }
    return names;
  }
};

}  // namespace

const std::string_view kWelcome =
    R"(Muster trains neural networks, and the same job gives the same bits.

Three things to try:
  muster doctor                              can this machine train, and how fast?
  muster train examples/lenet-mnist.yaml     train a model
  muster runs list                           see what came of it

All commands: muster --help
)";

const char* const kRootFooter = R"(Each command explains itself: muster train --help
Options of a job: muster config explain, docs/job-file.md. Exit codes: docs/exit-codes.md.)";

std::string examples_of(std::string_view command) {
  for (const auto& [name, text] : kExamples) {
    if (name == command) return fmt::format("Examples:\n{}", text);
  }
  return "";
}

std::shared_ptr<CLI::FormatterBase> help_formatter() { return std::make_shared<Pages>(); }

}  // namespace muster::cli

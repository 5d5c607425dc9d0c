#include "tools/muster/command_tree.h"

#include <cstdlib>

#include "tools/muster/help.h"
#include "tools/muster/value_checks.h"

namespace muster::cli {
namespace {

// What completion and help know about a choice; the check itself is a lambda CLI11 cannot show.
const std::vector<std::string> kFormats = {"table", "json"};
const std::vector<std::string> kShells = {"bash", "zsh", "fish"};
const std::vector<std::string> kPackFormats = {"tfrecord", "parquet"};
const std::vector<std::string> kSources = {"test", "train"};

std::string runs_folder() {
  const char* value = std::getenv("MUSTER_RUNS");  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr || *value == '\0' ? "runs" : value;
}

void add_format(CLI::App* app, Format& format) {
  app->add_option_function<std::string>(
         "-o,--output",
         [&format](const std::string& text) {
           format = text == "json" ? Format::kJson : Format::kTable;
         },
         "for people (table) or for programs (json)")
      ->type_name("table|json")
      ->check(one_of(kFormats));
}

void add_set(CLI::App* app, std::vector<std::string>& set, const std::string& description) {
  app->add_option("-s,--set", set, description)->type_name("KEY=VALUE")->allow_extra_args(false);
}

CLI::Option* add_worker(CLI::App* app, std::string& worker) {
  return app->add_option("--worker", worker, "the program that trains, instead of muster-worker")
      ->type_name("PROGRAM");
}

void add_several(CLI::App* app, SeveralArguments& several) {
  auto* workers =
      app->add_option("--workers", several.workers, "train with so many workers on this machine")
          ->type_name("N")
          ->check(whole_number(1));
  app->add_option("--hosts", several.hosts, "train on the machines that this file lists, over ssh")
      ->type_name("FILE")
      ->excludes(workers);
  app->add_option("--sites", several.sites,
                  "divide the workers into so many sites, whose workers compute replicas together")
      ->type_name("N")
      ->check(whole_number(1))
      ->needs(workers);
  app->add_option("--listen", several.listen,
                  "where other machines reach the coordinator; default: 127.0.0.1:0")
      ->type_name("HOST:PORT");
}

void add_runs(CLI::App* app, std::string& runs) {
  runs = runs_folder();
  app->add_option("--runs", runs, "where runs are; default: MUSTER_RUNS or ./runs")
      ->type_name("DIR");
}

void add_run(CLI::App* app, RunChoice& run, bool required) {
  const char* what = required ? "a run: its name, its path, or `latest`"
                              : "a run: its name or its path; default: the latest";
  app->add_option("RUN", run.name, what)->type_name("RUN")->required(required);
  add_runs(app, run.runs);
}

void add_checkpoint(CLI::App* app, std::string& checkpoint) {
  app->add_option("--checkpoint", checkpoint,
                  "which weights; default: the best if one was marked, else the newest")
      ->type_name("best|newest|STEP")
      ->check(checkpoint_name());
}

CLI::Option* add_data(CLI::App* app, std::string& data, std::string& format) {
  auto* option = app->add_option("--data", data,
                                 "other data than the job's: a path with or without wildcards, or "
                                 "a URL")
                     ->type_name("FILE");
  app->add_option("--format", format, "of that data; default: as that of the job")
      ->type_name("FORMAT")
      ->needs(option);
  return option;
}

CLI::Option* add_job(CLI::App* app, std::string& job) {
  return app->add_option("JOB", job, "a job file")->type_name("FILE")->required();
}

// Instead of a job file.
CLI::Option* add_program(CLI::App* app, CLI::Option* job, std::string& program) {
  return app
      ->add_option("--program", program,
                   "a training program in Python, instead of a job file (docs/python.md)")
      ->type_name("FILE")
      ->excludes(job)
      ->each([job](const std::string&) { job->required(false); });
}

// A command whose arguments become the request once the whole line is parsed.
template <typename Arguments>
std::shared_ptr<Arguments> add_command(CLI::App* parent, CLI::App*& app, const std::string& name,
                                       const std::string& description, Request& request) {
  app = parent->add_subcommand(name, description);
  const bool at_top = parent->get_parent() == nullptr;
  app->footer(examples_of(at_top ? name : parent->get_name() + " " + name));
  auto arguments = std::make_shared<Arguments>();
  app->callback([arguments, &request] { request = *arguments; });
  return arguments;
}

void add_train(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a =
      add_command<TrainArguments>(root, app, "train", "train a model as a job file says", request);
  auto* program = add_program(app, add_job(app, a->job), a->program);
  add_set(app, a->set, "change an option of the job; may be repeated");
  auto* quiet = app->add_flag("-q,--quiet", a->quiet, "only the result");
  app->add_flag("--json", a->json, "JSON lines: one for each event, the result as the last")
      ->excludes(quiet);
  app->add_option("--run-dir", a->run_directory, "where this run is written; must not exist yet")
      ->type_name("DIR");
  add_several(app, a->several);
  add_worker(app, a->worker)->excludes(program);
}

void add_verify(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<VerifyArguments>(
      root, app, "verify", "prove that faults do not change a bit of what a job gives", request);
  auto* job = app->add_option("JOB", a->job, "the job file")->type_name("JOB")->required();
  auto* program = add_program(app, job, a->program);
  add_set(app, a->set, "change an option of the job, for both runs");
  app->add_option("--workers", a->workers, "of the disturbed run; default: 4")
      ->type_name("N")
      ->check(whole_number(1));
  app->add_option("--sites", a->sites,
                  "divide these into so many sites, whose workers compute replicas together")
      ->type_name("N")
      ->check(whole_number(1));
  app->add_option("--servers", a->servers, "parameter servers of the disturbed run")
      ->type_name("N")
      ->check(whole_number(1));
  app->add_option("--faults", a->faults,
                  "which and how many; default: kill:20,suspend:5,leave:5,join:5")
      ->type_name("KIND:N,...");
  app->add_option("--seed", a->seed, "decides when and whom they hit; default: 1")
      ->type_name("N")
      ->check(whole_number(0));
  app->add_flag("--calm", a->calm,
                "inject a fault only after all workers have rejoined, to measure each");
  app->add_option("--lab", a->lab,
                  "put the workers on the hosts of this file, with slow links between them")
      ->type_name("FILE");
  app->add_option("--folder", a->folder, "where both runs are written, and kept")->type_name("DIR");
  app->add_flag("-q,--quiet", a->quiet, "do not show the undisturbed run");
  add_format(app, a->format);
  add_worker(app, a->worker)->excludes(program);
}

void add_resume(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<ResumeArguments>(root, app, "resume",
                                        "go on with a run that was interrupted", request);
  app->add_option("RUN", a->run.name,
                  "a run: its name, path or copy (checkpoint.to); default: the latest")
      ->type_name("RUN");
  add_runs(app, a->run.runs);
  add_set(app, a->set, "of length (passes, steps, time), machine and place of the data: see below");
  app->add_flag("--accept-other-data", a->accept_other_data,
                "go on although the data have changed since the checkpoint");
  auto* quiet = app->add_flag("-q,--quiet", a->quiet, "only the result");
  app->add_flag("--json", a->json, "JSON lines: one for each event, the result as the last")
      ->excludes(quiet);
  add_several(app, a->several);
  add_worker(app, a->worker);
}

void add_job_of_several(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  const char* where = "a run, or HOST:PORT of a coordinator; default: the latest run";
  auto status = add_command<StatusArguments>(
      root, app, "status", "who trains a job of several workers, and what happened", request);
  app->add_option("RUN", status->run.name, where)->type_name("RUN");
  add_runs(app, status->run.runs);
  app->add_flag("-w,--watch", status->watch, "again every second, until the job ends");
  add_format(app, status->format);

  auto join = add_command<JoinArguments>(
      root, app, "join", "add a worker on this machine to a job that is running", request);
  app->add_option("RUN", join->run.name, where)->type_name("RUN");
  add_runs(app, join->run.runs);
  app->add_option("--run", join->run_directory,
                  "with HOST:PORT: the run's directory, on storage that all workers share")
      ->type_name("DIR");
  app->add_option("--id", join->id, "the worker's name in the job; default: this machine's")
      ->type_name("ID")
      ->check(worker_id());
  app->add_option("--host", join->host,
                  "where the other workers reach this machine; default: as the coordinator does")
      ->type_name("HOST");
  app->add_option("--site", join->site, "whose workers it computes replicas together with")
      ->type_name("NAME");

  app->add_flag("-q,--quiet", join->quiet, "no progress");
  add_worker(app, join->worker);

  auto coordinator = add_command<CoordinatorArguments>(
      root, app, "coordinator", "a coordinator alone, for workers that join", request);
  app->add_option("JOB", coordinator->job, "a job file, or a run directory to go on with")
      ->type_name("FILE")
      ->required();
  add_set(app, coordinator->set, "change an option of the job; may be repeated");
  app->add_option("--listen", coordinator->listen,
                  "where workers reach it; default: 127.0.0.1:0, this machine only")
      ->type_name("HOST:PORT");
  app->add_option("--run-dir", coordinator->run_directory,
                  "where this run is written; must not exist yet")
      ->type_name("DIR");
}

void add_eval(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<EvalArguments>(root, app, "eval", "measure a trained model on test data",
                                      request);
  add_run(app, a->run, true);
  add_checkpoint(app, a->checkpoint);
  add_data(app, a->data, a->data_format);
  add_set(app, a->set, "only data.test, eval and threads may change");
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_replay(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<ReplayArguments>(root, app, "replay",
                                        "compute an asynchronous run again, and compare", request);
  add_run(app, a->run, true);
  add_checkpoint(app, a->checkpoint);
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_predict(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto a = add_command<PredictArguments>(root, app, "predict",
                                         "what a trained model says about samples", request);
  add_run(app, a->run, true);
  add_checkpoint(app, a->checkpoint);
  auto* samples =
      app->add_option("--samples", a->samples, "which samples, from 0: 0-9, or 1,5,8-10")
          ->type_name("A-B")
          ->check(sample_list());
  auto* from = app->add_option("--from", a->from, "from which data; default: test")
                   ->type_name("test|train")
                   ->check(one_of(kSources));
  auto* data = add_data(app, a->data, a->data_format)->excludes(from);
  auto* no_labels = app->add_flag("--no-labels", a->no_labels, "the data has none")->excludes(from);
  auto* out =
      app->add_option("--out", a->out, "write all samples to this file: .csv, .jsonl or .parquet")
          ->type_name("FILE")
          ->excludes(samples)
          ->excludes(from);
  app->add_option("--workers", a->workers, "worker processes on this machine; default: 1")
      ->type_name("N")
      ->check(whole_number(1))
      ->needs(out);
  app->add_flag("--force", a->force, "replace the file if it is there")->needs(out);
  auto* layer =
      app->add_option("--layer", a->layer, "what this layer puts out, instead of predictions")
          ->type_name("NAME");
  add_set(app, a->set, "of machine, evaluation and test data: see below");
  auto* prompt = app->add_option("--prompt", a->prompt, "for text: what to go on from")
                     ->type_name("TEXT")
                     ->excludes(samples)
                     ->excludes(from)
                     ->excludes(data)
                     ->excludes(out)
                     ->excludes(no_labels)
                     ->excludes(layer);
  app->add_flag("--raw", a->raw, "all that the model puts out")->excludes(prompt)->excludes(layer);
  app->add_option("--length", a->length, "how many characters to write")
      ->type_name("N")
      ->check(whole_number(1))
      ->needs(prompt);
  app->add_option("--temperature", a->temperature, "0: always the likeliest; 1: as learnt")
      ->type_name("T")
      ->check(positive_number())
      ->needs(prompt);
  app->add_option("--seed", a->seed, "the same seed writes the same text")
      ->type_name("N")
      ->check(whole_number(0))
      ->needs(prompt);
  add_format(app, a->format);
  add_worker(app, a->worker);
}

void add_config(CLI::App* root, Request& request) {
  CLI::App* group = root->add_subcommand("config", "look at job files and their options");
  group->footer(examples_of("config"));
  CLI::App* app = nullptr;
  auto check = add_command<ConfigCheckArguments>(
      group, app, "check", "whether a job can run: options, files, data, shapes", request);
  add_job(app, check->job);
  add_set(app, check->set, "change an option of the job; may be repeated");
  app->add_flag("--no-data,--offline", check->no_data, "only the options; open no data");
  add_format(app, check->format);
  add_worker(app, check->worker);

  auto show = add_command<ConfigShowArguments>(group, app, "show",
                                               "a job with every option spelled out", request);
  add_job(app, show->job);
  add_set(app, show->set, "change an option of the job; may be repeated");
  add_format(app, show->format);

  auto explain = add_command<ConfigExplainArguments>(
      group, app, "explain", "what an option is for, what it may be, its default", request);
  app->add_option("KEY", explain->key, "an option or a section; default: the whole job")
      ->type_name("KEY");
  add_format(app, explain->format);

  add_command<ConfigSchemaArguments>(group, app, "schema", "JSON schema of a job file, for editors",
                                     request);
}

void add_runs_commands(CLI::App* root, Request& request) {
  CLI::App* group = root->add_subcommand("runs", "look at runs, past and present");
  group->footer(examples_of("runs"));
  CLI::App* app = nullptr;
  auto list =
      add_command<RunsListArguments>(group, app, "list", "all runs, the newest first", request);
  add_runs(app, list->runs);
  add_format(app, list->format);

  auto show = add_command<RunsShowArguments>(group, app, "show", "one run in detail", request);
  add_run(app, show->run, false);
  add_format(app, show->format);

  auto compare = add_command<RunsCompareArguments>(
      group, app, "compare", "two runs: options that differ, results, same bits or not", request);
  app->add_option("A", compare->a, "a run: its name or its path")->type_name("RUN")->required();
  app->add_option("B", compare->b, "another")->type_name("RUN")->required();
  add_runs(app, compare->runs);
  add_format(app, compare->format);

  auto plot = add_command<RunsPlotArguments>(group, app, "plot",
                                             "curves of runs, drawn in the terminal", request);
  app->add_option("RUN", plot->names, "runs: their names or paths; default: the latest")
      ->type_name("RUN");
  app->add_option("-m,--metric", plot->metrics,
                  "what to draw; may be repeated; default: the loss, and what evaluations measure")
      ->type_name("NAME")
      ->allow_extra_args(false);
  add_runs(app, plot->runs);
  add_format(app, plot->format);

  auto fetch = add_command<RunsFetchArguments>(
      group, app, "fetch", "the newest checkpoint of a run that a job sent elsewhere", request);
  app->add_option("COPY", fetch->from, "the job's checkpoint.to: s3://bucket/prefix, or a path")
      ->type_name("COPY")
      ->required();
  auto* place = app->add_option("--run-dir", fetch->run_directory,
                                "where it is written; default: its own name, where runs are")
                    ->type_name("DIR");
  add_runs(app, fetch->runs);
  app->get_option("--runs")->excludes(place);
  add_format(app, fetch->format);
}

void add_data_commands(CLI::App* root, Request& request) {
  CLI::App* group =
      root->add_subcommand("data", "look at the data of a job, or rewrite it, without training");
  group->footer(examples_of("data"));
  CLI::App* app = nullptr;
  const char* change = "change an option of the job; may be repeated";
  auto index = add_command<DataIndexArguments>(
      group, app, "index", "make the index of data that is read by blocks", request);
  add_job(app, index->job);
  add_set(app, index->set, change);
  app->add_option("--out", index->out, "where indexes are saved; default: the job's data.index")
      ->type_name("DIR");
  app->add_flag("--again", index->again, "also what is indexed there already");
  add_format(app, index->format);

  auto info = add_command<DataInfoArguments>(group, app, "info",
                                             "how much data there is, and how it is read", request);
  add_job(app, info->job);
  add_set(app, info->set, change);
  add_format(app, info->format);

  auto check = add_command<DataCheckArguments>(group, app, "check",
                                               "read all of it, to find what is damaged", request);
  add_job(app, check->job);
  add_set(app, check->set, change);
  add_format(app, check->format);

  auto pack = add_command<DataPackArguments>(
      group, app, "pack", "rewrite it into files that are read by blocks", request);
  add_job(app, pack->job);
  add_set(app, pack->set, change);
  app->add_option("--out", pack->out, "where the directories train and test are made")
      ->type_name("DIR")
      ->required();
  app->add_flag("--shuffle", pack->shuffle, "put the training samples in random order, by `seed`");
  app->add_option("--format", pack->pack_as, "of the files; default: tfrecord")
      ->type_name("tfrecord|parquet")
      ->check(one_of(kPackFormats));
  app->add_option("--block", pack->block, "bytes of samples in a block; default: 4MiB")
      ->type_name("BYTES");
  add_format(app, pack->format);
}

void add_others(CLI::App* root, Request& request) {
  CLI::App* app = nullptr;
  auto report = add_command<ReportArguments>(
      root, app, "report", "curves, workers, faults and times of runs as one HTML file", request);
  app->add_option("RUN", report->names, "runs: their names or paths; default: the latest")
      ->type_name("RUN");
  app->add_option("-o,--out", report->out, "the file to write; default: report.html")
      ->type_name("FILE");
  app->add_flag("--force", report->force, "replace the file also if it is no report");
  add_runs(app, report->runs);

  auto exported = add_command<ExportArguments>(
      root, app, "export", "a run's weights as a file that Python reads, and its rows", request);
  add_run(app, exported->run, true);
  app->add_option("--out", exported->out, "the file to write")->type_name("FILE")->required();
  add_checkpoint(app, exported->checkpoint);
  app->add_option(
         "--since", exported->since,
         "of a job with tables: only rows that changed since this step, and which are gone")
      ->type_name("STEP")
      ->check(whole_number(0));
  app->add_flag("--pt2", exported->pt2,
                "as a copy of model.file, the PyTorch model that was trained, with the weights");
  app->add_flag("--with-job", exported->with_job, "also write the job file, as FILE.job.yaml");
  app->add_flag("-f,--force", exported->force, "replace what is there");
  add_format(app, exported->format);

  auto doctor = add_command<DoctorArguments>(
      root, app, "doctor", "whether this machine can train, how fast, what to change", request);
  app->add_option(
         "JOB", doctor->job,
         "also time steps of this job, with other numbers of lanes and of threads per lane")
      ->type_name("JOB");
  add_set(app, doctor->set, "change an option of the job; may be repeated");
  add_runs(app, doctor->runs);
  add_format(app, doctor->format);
  add_worker(app, doctor->worker);

  auto plan = add_command<PlanArguments>(
      root, app, "plan", "which strategy to take on a slow network, before training", request);
  add_job(app, plan->job);
  add_set(app, plan->set, "change an option of the job; may be repeated");
  auto* hosts = app->add_option("--hosts", plan->hosts,
                                "on these machines, as for `train`: their links and steps are "
                                "measured")
                    ->type_name("FILE");
  app->add_option("--listen", plan->listen, "where these machines reach this one")
      ->type_name("HOST:PORT")
      ->needs(hosts);
  app->add_option("--workers", plan->workers, "on so many machines, one worker each")
      ->type_name("N")
      ->check(whole_number(1))
      ->excludes(hosts)
      ->capture_default_str();
  app->add_option("--rate", plan->rate, "what each machine can send and receive")
      ->type_name("RATE")
      ->excludes(hosts)
      ->capture_default_str();
  app->add_option("--delay", plan->delay, "from one machine to another, one way")
      ->type_name("TIME")
      ->excludes(hosts)
      ->capture_default_str();
  app->add_option("--step-time", plan->step_time,
                  "that one of these workers needs for a step; without it this is measured here")
      ->type_name("TIME")
      ->excludes(hosts);
  add_format(app, plan->format);
  add_worker(app, plan->worker);

  auto completion = add_command<CompletionArguments>(
      root, app, "completion", "a script that completes commands in your shell", request);
  app->add_option("SHELL", completion->shell, "bash, zsh or fish")
      ->type_name("bash|zsh|fish")
      ->check(one_of(kShells))
      ->required();

  auto version =
      add_command<VersionArguments>(root, app, "version", "which Muster this is", request);
  add_format(app, version->format);
}

}  // namespace

std::unique_ptr<CLI::App> make_tree(Request& request) {
  auto root = std::make_unique<CLI::App>(kTagline, "muster");
  root->formatter(help_formatter());
  root->set_help_flag("-h,--help", "explain this command");
  root->require_subcommand(0, 1);  // a word after a command is never another command
  root->footer(kRootFooter);
  root->add_flag_callback(
      "--version", [&request] { request = VersionArguments{}; }, "which Muster this is");
  add_train(root.get(), request);
  add_verify(root.get(), request);
  add_resume(root.get(), request);
  add_job_of_several(root.get(), request);
  add_eval(root.get(), request);
  add_replay(root.get(), request);
  add_predict(root.get(), request);
  add_config(root.get(), request);
  add_runs_commands(root.get(), request);
  add_data_commands(root.get(), request);
  add_others(root.get(), request);
  return root;
}

}  // namespace muster::cli

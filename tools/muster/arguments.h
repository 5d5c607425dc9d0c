// What a command line asks for, typed: one struct per command. command_line.h fills them,
// commands.h carries them out; neither knows how the other does it.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tools/muster/console.h"

namespace muster::cli {

// Which run, for commands that look at one. Empty name: the latest.
struct RunChoice {
  std::string name;  // of a run, or a path; resume: or where its copy is
  std::string runs;  // where runs are: --runs, MUSTER_RUNS or "runs"
};

// How a job of several workers is started. Nothing of it: one worker, and no coordinator.
struct SeveralArguments {
  int64_t workers = 0;  // on this machine; 0: not said
  int64_t sites = 0;    // into which these are divided; 0: none

  std::string hosts;   // a file that says on which others; empty: none
  std::string listen;  // where the coordinator listens; empty: for these workers only

  bool any() const { return workers > 0 || !hosts.empty() || !listen.empty(); }
};

struct TrainArguments {
  std::string job;
  std::string program;           // in Python, instead of a job file; empty: none
  std::vector<std::string> set;  // key=value
  bool quiet = false;
  bool json = false;
  std::string run_directory;  // empty: a new one under the job's `runs`
  std::string worker;
  SeveralArguments several;
};

struct ResumeArguments {
  RunChoice run;
  std::vector<std::string> set;
  bool accept_other_data = false;
  bool quiet = false;
  bool json = false;
  std::string worker;
  SeveralArguments several;
};

struct VerifyArguments {
  std::string job;
  std::string program;  // in Python, instead of a job file; empty: none
  std::vector<std::string> set;
  int64_t workers = 4;
  int64_t sites = 0;    // into which these are divided; 0: none
  int64_t servers = 0;  // of parameters; 0: as the job says
  std::string faults = "kill:20,suspend:5,leave:5,join:5";
  uint64_t seed = 1;
  bool calm = false;   // one fault at a time
  std::string lab;     // a file that describes hosts (muster/lab); empty: no laboratory
  std::string folder;  // for both runs; empty: a temporary one
  bool quiet = false;
  Format format = Format::kTable;
  std::string worker;
};

struct StatusArguments {
  RunChoice run;  // or the address of a coordinator
  Format format = Format::kTable;
  bool watch = false;
};

struct CoordinatorArguments {
  std::string job;  // a job file, or a run directory to go on with
  std::vector<std::string> set;
  std::string run_directory;
  std::string listen;
};

struct JoinArguments {
  RunChoice run;              // or the address of a coordinator
  std::string run_directory;  // with an address: where the run is, as seen from this machine
  std::string id;
  std::string host;
  std::string site;
  bool quiet = false;
  std::string worker;
};

struct EvalArguments {
  RunChoice run;
  std::string checkpoint;   // best, newest, a step; empty: the best, if one was marked
  std::string data;         // a path or a URL; empty: the test data of the job
  std::string data_format;  // of that; empty: as that of the job
  std::vector<std::string> set;
  Format format = Format::kTable;
  std::string worker;
};

struct ReplayArguments {
  RunChoice run;
  std::string checkpoint;  // empty: the newest
  Format format = Format::kTable;
  std::string worker;
};

struct PredictArguments {
  RunChoice run;
  std::string checkpoint;
  std::string samples;  // "0-9"; empty: the worker's default
  std::string from;
  std::string data;         // a path or a URL; empty: the data of the job
  std::string data_format;  // of that; empty: as that of the job
  bool no_labels = false;
  std::vector<std::string> set;
  bool raw = false;
  std::string layer;  // whose features are wanted; empty: predictions
  std::string out;    // a file for all samples; empty: some are printed
  int64_t workers = 1;
  bool force = false;
  std::optional<std::string> prompt;
  std::string length, temperature, seed;  // numbers, checked; empty: the worker's defaults
  Format format = Format::kTable;
  std::string worker;
};

struct ConfigCheckArguments {
  std::string job;
  std::vector<std::string> set;
  bool no_data = false;
  Format format = Format::kTable;
  std::string worker;
};

struct ConfigShowArguments {
  std::string job;
  std::vector<std::string> set;
  Format format = Format::kTable;
};

struct ConfigExplainArguments {
  std::string key;
  Format format = Format::kTable;
};

struct ConfigSchemaArguments {};

struct RunsListArguments {
  std::string runs;
  Format format = Format::kTable;
};

struct RunsShowArguments {
  RunChoice run;
  Format format = Format::kTable;
};

struct RunsCompareArguments {
  std::string a, b;
  std::string runs;
  Format format = Format::kTable;
};

struct RunsPlotArguments {
  std::vector<std::string> names;  // of runs; none: the latest
  std::string runs;
  std::vector<std::string> metrics;  // none: the loss and those of evaluations
  Format format = Format::kTable;
};

struct RunsFetchArguments {
  std::string from;           // where the copy of a run is: a job's checkpoint.to
  std::string runs;           // in which it gets its own name
  std::string run_directory;  // or exactly here
  Format format = Format::kTable;
};

struct ReportArguments {
  std::vector<std::string> names;  // of runs; none: the latest
  std::string runs;
  std::string out = "report.html";
  bool force = false;
};

struct ExportArguments {
  RunChoice run;
  std::string checkpoint;
  std::string out;
  int64_t since = -1;  // of rows: only what changed since this step; -1: all
  bool pt2 = false;    // as a copy of model.file
  bool with_job = false;
  bool force = false;
  Format format = Format::kTable;
};

struct DoctorArguments {
  std::string job;  // to be timed; empty: none
  std::vector<std::string> set;
  std::string runs;
  Format format = Format::kTable;
  std::string worker;
};

struct PlanArguments {
  std::string job;
  std::vector<std::string> set;
  int64_t workers = 4;
  std::string rate = "1gbit";
  std::string delay = "0.1ms";  // one way
  std::string step_time;        // of a worker alone; empty: measured
  std::string hosts;            // a file of machines on which all of that is measured; or empty
  std::string listen;           // with hosts: where they reach this machine
  Format format = Format::kTable;
  std::string worker;
};

struct DataIndexArguments {
  std::string job;
  std::vector<std::string> set;
  std::string out;     // directory of indexes; empty: as the job says
  bool again = false;  // also what is indexed already
  Format format = Format::kTable;
};

struct DataInfoArguments {
  std::string job;
  std::vector<std::string> set;
  Format format = Format::kTable;
};

struct DataCheckArguments {
  std::string job;
  std::vector<std::string> set;
  Format format = Format::kTable;
};

struct DataPackArguments {
  std::string job;
  std::vector<std::string> set;
  std::string out;
  bool shuffle = false;
  std::string pack_as = "tfrecord";
  std::string block = "4MiB";
  Format format = Format::kTable;
};

struct CompletionArguments {
  std::string shell;
};

struct VersionArguments {
  Format format = Format::kTable;
};

// Print this and leave: --help, or `muster` alone.
struct TextRequest {
  std::string text;
};

using Request =
    std::variant<TextRequest, TrainArguments, ResumeArguments, StatusArguments,
                 CoordinatorArguments, JoinArguments, EvalArguments, PredictArguments,
                 ReplayArguments, ConfigCheckArguments, ConfigShowArguments, ConfigExplainArguments,
                 ConfigSchemaArguments, RunsListArguments, RunsShowArguments, RunsCompareArguments,
                 RunsPlotArguments, RunsFetchArguments, VerifyArguments, ReportArguments,
                 ExportArguments, DoctorArguments, PlanArguments, DataIndexArguments,
                 DataInfoArguments, DataCheckArguments, DataPackArguments, CompletionArguments,
                 VersionArguments>;

}  // namespace muster::cli

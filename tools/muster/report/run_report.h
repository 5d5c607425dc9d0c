// What a report tells of one run: read from its directory, however broken that is. Only reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/track/curves.h"
#include "muster/track/run_directory.h"
#include "muster/track/run_events.h"

#include "tools/muster/run_facts.h"

namespace muster::cli::report {

// A line of a log that is worth a place in a report.
struct LogLine {
  std::string file;  // "log.txt", "workers/1.log"
  std::string time;
  std::string text;
};

struct StepTimes {
  size_t count = 0;  // of recorded steps
  double median = 0;
  double ninety = 0;  // 9 of 10 are as short
  double longest = 0;
  int64_t longest_step = 0;
  double total = 0;
  std::optional<double> waited;  // for other workers, of the total
};

struct RunReport {
  std::string title;  // tells it apart from the other runs
  RunFacts facts;
  std::optional<config::Job> job;
  std::string job_text;  // job.yaml
  std::vector<track::Curve> curves;
  int64_t lines_skipped = 0;  // of the metrics, that are no records
  uint64_t rollbacks = 0;     // that the metrics tell of
  std::vector<double> times;  // at which steps were recorded, ascending
  std::optional<StepTimes> step_times;
  std::vector<track::RunEvent> events;
  std::vector<LogLine> data_lines;  // the last figures of each log
  std::vector<LogLine> data_waits;  // warnings that data was waited for
  std::vector<LogLine> audit_lines;
  std::vector<LogLine> warnings;  // all others
  size_t warnings_left_out = 0;
};

RunReport read_run(const track::RunDirectory& run, FileSystem& files);

// Of the curves "seconds" and "waited"; nothing without.
std::optional<StepTimes> times_of(const std::vector<track::Curve>& curves);

}  // namespace muster::cli::report

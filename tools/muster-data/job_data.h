// What the data commands share: the data of a job, opened as a worker opens it, and a line that
// shows how far they are.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "muster/config/job.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/dataset.h"

#include "tools/muster/commands.h"

namespace muster::cli {

// One line on a terminal's standard error, redrawn; nothing elsewhere.
class StatusLine {
 public:
  StatusLine();
  ~StatusLine() { clear(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(const std::string& text);
  // The same, at most five times a second; text() is called only then.
  template <typename Text>
  void show_now_and_then(const Text& text) {
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_last_ < std::chrono::milliseconds(200)) return;
    shown_last_ = now;
    show(text());
  }
  void clear();

 private:
  const bool shown_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point shown_last_;
};

struct NamedSource {
  std::string key;  // "data.train"
  config::SourceOptions options;
};

// Prints its warnings.
Result<config::Job> load_job(const std::string& path, const std::vector<std::string>& sets,
                             Context& context);

// `context` and `line` must outlive it.
data::BlockSetup setup_for(const config::Job& job, Context& context, StatusLine& line);

Result<std::unique_ptr<data::Dataset>> open_source(const NamedSource& source,
                                                   const data::BlockSetup& setup);

// Those that the job has. Test data without `classes` has as many as the training data, as when the
// job trains; training data that is read as a whole is opened if they must be counted.
Result<std::vector<NamedSource>> sources_of(const config::Job& job, const data::BlockSetup& setup);

}  // namespace muster::cli

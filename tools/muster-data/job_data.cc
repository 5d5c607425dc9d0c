#include "tools/muster-data/job_data.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "muster/config/load.h"

#include "tools/muster/job_sources.h"

namespace muster::cli {

StatusLine::StatusLine() : shown_(isatty(STDERR_FILENO) != 0) {}

void StatusLine::show(const std::string& text) {
  if (!shown_) return;
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
  drawn_ = true;
}

void StatusLine::clear() {
  if (std::exchange(drawn_, false)) fmt::print(stderr, "\r\x1b[K");
}

std::vector<NamedSource> sources_of(const config::Job& job) {
  std::vector<NamedSource> sources = {{"data.train", job.data.train}};
  if (!job.data.test.format.empty()) sources.push_back({"data.test", job.data.test});
  return sources;
}

Result<config::Job> load_job(const std::string& path, const std::vector<std::string>& sets,
                             Context& context) {
  MUSTER_TRY(const auto sources, job_sources(path, sets, context.files));
  MUSTER_TRY(auto loaded, config::load_job(sources));
  for (const auto& warning : loaded.warnings) context.console.warning(warning);
  return std::move(loaded.job);
}

data::BlockSetup setup_for(const config::Job& job, Context& context, StatusLine& line) {
  auto setup = data::setup_of(job.data);
  setup.store = data::open_patient_store();
  setup.files = &context.files;
  setup.tell = [&line](const std::string& what) { line.show(what); };
  return setup;
}

Result<std::unique_ptr<data::Dataset>> open_source(const NamedSource& source,
                                                   const data::BlockSetup& setup) {
  auto opened = data::Registry::builtin().open(source.options, setup);
  if (!opened.ok()) return std::move(opened).error().context("{}", source.key);
  return opened;
}

}  // namespace muster::cli

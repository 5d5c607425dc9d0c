#include "tools/muster-data/job_data.h"

#include <utility>

#include "muster/config/load.h"
#include "muster/config/source.h"
#include "muster/data/blocks/image_classes.h"

#include "tools/muster/job_sources.h"

namespace muster::cli {

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

data::BlockSetup own_setup(const NamedSource& source, data::BlockSetup setup) {
  if (source.key == "data.test") setup.longest_block = 0;  // as in training: it is not mixed
  return setup;
}

Result<std::unique_ptr<data::Dataset>> open_source(const NamedSource& source,
                                                   const data::BlockSetup& setup) {
  auto opened = data::Registry::builtin().open(source.options, own_setup(source, setup));
  if (!opened.ok()) return std::move(opened).error().context("{}", source.key);
  return opened;
}

Result<std::vector<NamedSource>> sources_of(const config::Job& job, const data::BlockSetup& setup) {
  std::vector<NamedSource> sources = {{"data.train", job.data.train}};
  if (job.data.test.format.empty()) return sources;
  NamedSource test = {"data.test", job.data.test};
  if (test.options.classes == 0) test.options.classes = job.data.train.classes;
  const bool counts = test.options.target == "class" && !config::is_read_by_blocks(job.data.train);
  if (test.options.classes == 0 && counts && config::is_read_by_blocks(test.options)) {
    MUSTER_TRY(const auto train, open_source(sources[0], setup));
    test.options.classes = train->schema().classes;
  }
  MUSTER_RETURN_IF_ERROR(data::number_classes_alike(job.data.train, test.options));
  sources.push_back(std::move(test));
  return sources;
}

}  // namespace muster::cli

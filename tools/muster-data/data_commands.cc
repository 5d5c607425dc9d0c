#include "tools/muster-data/data_commands.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "muster/base/text.h"
#include "muster/data/batch.h"
#include "muster/data/blocks/block_format.h"
#include "muster/data/blocks/image_classes.h"
#include "muster/data/blocks/open_blocks.h"
#include "muster/data/blocks/strata.h"
#include "muster/data/dataset.h"
#include "muster/data/read_ahead.h"

#include "tools/muster-data/job_data.h"
#include "tools/muster/status_line.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// How much is decoded at once: as many samples as stay in a processor's cache.
constexpr uint64_t kBytesAtOnce = 256 << 10;
constexpr uint64_t kBlocksAtOnce = 64 << 20;  // bytes, those that are read ahead included
constexpr uint64_t kMostSamplesAtOnce = 256;
constexpr size_t kMostNames = 20;  // of classes that are printed

Json facts_of(const data::BlockIndex& index) {
  uint64_t longest = 0;
  for (const auto& block : index.blocks) longest = std::max(longest, block.length);
  return {{"files", index.objects.size()}, {"bytes", index.bytes()},
          {"blocks", index.blocks.size()}, {"mean_block", index.bytes() / index.blocks.size()},
          {"longest_block", longest},      {"index_hash", index.hash().hex()}};
}

std::string bytes_text(const Json& value) { return human_bytes(value.get<double>()); }

Json facts_of(const NamedSource& source, const data::Dataset& dataset, const config::Job& job) {
  Json facts = {{"source", source.key},
                {"format", source.options.format},
                {"samples", dataset.size()},
                {"input_shape", dataset.schema().input_shape},
                {"classes", dataset.schema().classes},
                {"by_blocks", dataset.blocks() != nullptr}};
  if (source.options.format == "images") {
    const auto* named = source.options.args.find("class_names");
    if (named != nullptr) {
      for (const auto& name : named->items()) facts["class_names"].push_back(name.text());
    } else if (const auto names = data::image_classes(source.options.path); names.ok()) {
      facts["class_names"] = *names;
    }
  }
  if (dataset.blocks() == nullptr) return facts;
  const auto& index = *dataset.blocks();
  facts.update(facts_of(index));
  if (source.key != "data.train") return facts;
  facts["order"] = job.data.order == "full" ? "full" : "strata";
  if (job.data.order == "full") return facts;
  const data::StrataOptions options = {.window = static_cast<uint64_t>(job.data.window)};
  const auto lanes = static_cast<uint64_t>(job.lanes);
  const auto shape = data::strata_shape(index, lanes, options);
  facts["blocks_of_a_lane"] = shape.tracks;
  // What all lanes together have open: block_cache.h.
  facts["least_memory"] =
      lanes * (shape.tracks + (shape.tracks + 7) / 8) * (index.bytes() / index.blocks.size());
  return facts;
}

void print_facts(const Json& facts, Console& console) {
  const auto number = [&](const char* key) { return with_commas(facts[key].get<uint64_t>()); };
  console.line(fmt::format("{}: {}, {} samples of [{}]{}", facts["source"].get<std::string>(),
                           facts["format"].get<std::string>(), number("samples"),
                           fmt::join(facts["input_shape"].get<std::vector<int64_t>>(), ", "),
                           facts["classes"].get<int64_t>() > 0
                               ? fmt::format(", {} classes", facts["classes"].get<int64_t>())
                               : ""));
  if (!facts["by_blocks"].get<bool>()) {
    const std::string format = facts["format"].get<std::string>();
    const bool in_place = format == "images" || format == "lmdb" || format == "tokens";
    console.line(in_place ? "  read where it is, sample by sample" : "  read as a whole");
    if (facts.contains("class_names")) {
      const auto names = facts["class_names"].get<std::vector<std::string>>();
      std::string line;
      for (size_t i = 0; i < names.size() && i < kMostNames; ++i) {
        line += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, names[i]);
      }
      console.line(fmt::format("  classes: {}{}", line, names.size() > kMostNames ? ", ..." : ""));
    }
    return;
  }
  console.line(fmt::format("  {} in {}; {}, {} on average, {} at most", bytes_text(facts["bytes"]),
                           counted(facts["files"].get<uint64_t>(), "file"),
                           counted(facts["blocks"].get<uint64_t>(), "block"),
                           bytes_text(facts["mean_block"]), bytes_text(facts["longest_block"])));
  if (facts.contains("blocks_of_a_lane")) {
    console.line(
        fmt::format("  order strata: each lane mixes {} blocks; all lanes together hold "
                    "about {}",
                    number("blocks_of_a_lane"), bytes_text(facts["least_memory"])));
  } else if (facts.contains("order")) {
    console.line("  order full: every sample needs a block of its own to be read");
  }
}

// Reads these samples, and says what is wrong.
class Checker {
 public:
  Checker(const NamedSource& source, const data::Dataset& dataset, Console& console,
          StatusLine& line, bool quiet)
      : source_(source),
        dataset_(dataset),
        console_(console),
        line_(line),
        quiet_(quiet),
        at_once_(std::clamp<uint64_t>(
            kBytesAtOnce / std::max<uint64_t>(dataset.schema().input_bytes(), 1), 1,
            kMostSamplesAtOnce)),
        ahead_(dataset, 0, dataset.size(), at_once_, 1) {}

  // How many parts of the data could not be read.
  Result<uint64_t> run() {
    if (const auto index = dataset_.blocks(); index != nullptr) {
      for (const auto& block : index->blocks)
        MUSTER_RETURN_IF_ERROR(read(block.first, block.count));
    } else {
      for (uint64_t first = 0; first < dataset_.size(); first += at_once_) {
        MUSTER_RETURN_IF_ERROR(read_each(first, std::min(at_once_, dataset_.size() - first)));
      }
    }
    return damaged_;
  }

 private:
  // A block, which is given up at its first error: one damaged sample makes all of it count as
  // damaged.
  Status read(uint64_t first, uint64_t count) {
    for (uint64_t at = first; at < first + count; at += at_once_) {
      const uint64_t some = std::min(at_once_, first + count - at);
      ahead_.reached(at);
      auto status = data::read_range(dataset_, at, some, batch_);
      if (status.ok()) continue;
      MUSTER_RETURN_IF_ERROR(note(std::move(status)));
      break;
    }
    tell(first);
    return {};
  }

  // Samples that are read one by one: if one is damaged, those behind it are read all the same.
  Status read_each(uint64_t first, uint64_t count) {
    const auto together = data::read_range(dataset_, first, count, batch_);
    if (!together.ok()) {
      for (uint64_t at = first; at < first + count; ++at) {
        auto status = data::read_range(dataset_, at, 1, batch_);
        if (!status.ok()) MUSTER_RETURN_IF_ERROR(note(std::move(status)));
      }
    }
    tell(first);
    return {};
  }

  // Counts and names damage. A store that is away, or a signal, is none: that is returned.
  Status note(Status status) {
    if (status.error().kind() != ErrorKind::kData) return status;
    ++damaged_;
    line_.clear();
    if (!quiet_) console_.aside(fmt::format("{}: {}", source_.key, status.error().message()));
    return {};
  }

  void tell(uint64_t first) {
    line_.show_now_and_then([&] {
      return fmt::format("checking {}: {} of {} samples", source_.key, with_commas(first),
                         with_commas(dataset_.size()));
    });
  }

  const NamedSource& source_;
  const data::Dataset& dataset_;
  Console& console_;
  StatusLine& line_;
  const bool quiet_;
  const uint64_t at_once_;  // samples
  data::Batch batch_;
  data::ReadAhead ahead_;
  uint64_t damaged_ = 0;
};

}  // namespace

Outcome index_data(const DataIndexArguments& arguments, Context& context) {
  MUSTER_TRY(const auto job, load_job(arguments.job, arguments.set, context));
  StatusLine line;
  auto setup = setup_for(job, context, line);
  if (!arguments.out.empty()) setup.indexes = arguments.out;
  if (setup.indexes.empty()) {
    return Error(ErrorKind::kUsage,
                 "name a directory for the indexes: --out DIR, or data.index in the job");
  }
  setup.index_again = arguments.again;
  // So that it is said now, and not after an hour of indexing, that it cannot be written to.
  MUSTER_RETURN_IF_ERROR(context.files.create_directories(setup.indexes));
  Json results = Json::array();
  MUSTER_TRY(const auto sources, sources_of(job, setup));
  for (const auto& source : sources) {
    auto format = data::Registry::builtin().block_format(source.options);
    if (!format.ok()) return std::move(format).error().context("{}", source.key);
    if (*format == nullptr) continue;
    auto found = data::find_index(source.options, **format, *setup.store, own_setup(source, setup));
    if (!found.ok()) return std::move(found).error().context("{}", source.key);
    line.clear();
    if (!context.files.exists(found->path)) {
      return Error(ErrorKind::kIo, "the index could not be written to '{}'", found->path);
    }
    const data::BlockIndex& index = found->index;
    Json facts = {{"source", source.key}, {"samples", index.samples()}};
    facts.update(facts_of(index));
    facts["path"] = found->path;
    if (arguments.format == Format::kTable) {
      context.console.line(fmt::format("{}: {} samples, {} in {}, {}", source.key,
                                       with_commas(index.samples()), bytes_text(facts["bytes"]),
                                       counted(index.objects.size(), "file"),
                                       counted(index.blocks.size(), "block")));
    }
    results.push_back(std::move(facts));
  }
  if (arguments.format == Format::kJson) {
    context.console.line(results.dump());
  } else if (results.empty()) {
    context.console.line("no data of this job is read by blocks: there is nothing to index");
  } else if (job.data.index.empty()) {
    context.console.note(fmt::format("jobs use it with data.index: {}", setup.indexes));
  }
  return 0;
}

Outcome show_data(const DataInfoArguments& arguments, Context& context) {
  MUSTER_TRY(const auto job, load_job(arguments.job, arguments.set, context));
  StatusLine line;
  const auto setup = setup_for(job, context, line);
  Json results = Json::array();
  MUSTER_TRY(const auto sources, sources_of(job, setup));
  for (const auto& source : sources) {
    MUSTER_TRY(const auto dataset, open_source(source, setup));
    line.clear();
    results.push_back(facts_of(source, *dataset, job));
    if (arguments.format == Format::kTable) print_facts(results.back(), context.console);
  }
  if (arguments.format == Format::kJson) context.console.line(results.dump());
  return 0;
}

Outcome check_data(const DataCheckArguments& arguments, Context& context) {
  MUSTER_TRY(const auto job, load_job(arguments.job, arguments.set, context));
  const bool json = arguments.format == Format::kJson;
  StatusLine line;
  auto setup = setup_for(job, context, line);
  setup.stream.cache.clear();  // what counts is what the store has
  // Each block is read once. What is kept of it afterwards would only be memory that the next one
  // does not find in the processor's cache.
  setup.stream.fetch.memory = std::min(setup.stream.fetch.memory, kBlocksAtOnce);
  Json results = Json::array();
  uint64_t damaged = 0;
  MUSTER_TRY(const auto sources, sources_of(job, setup));
  for (const auto& source : sources) {
    MUSTER_TRY(const auto dataset, open_source(source, setup));
    MUSTER_TRY(const uint64_t found, Checker(source, *dataset, context.console, line, json).run());
    line.clear();
    damaged += found;
    if (json) {
      results.push_back({{"source", source.key}, {"samples", dataset->size()}, {"damaged", found}});
    } else {
      context.console.line(
          fmt::format("{}: {} samples, {}", source.key, with_commas(dataset->size()),
                      found == 0 ? "all can be read" : counted(found, "part") + " cannot be read"));
    }
  }
  if (json) context.console.line(results.dump());
  return damaged == 0 ? 0 : static_cast<int>(ErrorKind::kData);
}

}  // namespace muster::cli

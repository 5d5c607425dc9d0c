#include "muster/config/validate.h"

#include <algorithm>

#include "muster/base/text.h"
#include "muster/config/rounds.h"
#include "muster/config/source.h"
#include "muster/config/units.h"

namespace muster::config {
namespace {

constexpr int64_t kMostResults = 1 << 20;                   // of a commit
constexpr int64_t kMostLanesOfTables = 1023;                // ps/step_sums.h
constexpr int64_t kLeastMemoryWithDisk = int64_t{4} << 20;  // tools/muster-server

// Job and places together, so that a rule is one line.
class Rules {
 public:
  Rules(const Job& job, const Places& places) : job_(job), places_(places) {}

  Status check() const {
    MUSTER_RETURN_IF_ERROR(without_effect());
    MUSTER_RETURN_IF_ERROR(model());
    MUSTER_RETURN_IF_ERROR(source("data.train", job_.data.train));
    MUSTER_RETURN_IF_ERROR(source("data.test", job_.data.test));
    MUSTER_RETURN_IF_ERROR(order());
    MUSTER_RETURN_IF_ERROR(damage());
    MUSTER_RETURN_IF_ERROR(length());
    MUSTER_RETURN_IF_ERROR(optimizer());
    MUSTER_RETURN_IF_ERROR(schedule());
    MUSTER_RETURN_IF_ERROR(sync());
    MUSTER_RETURN_IF_ERROR(tables());
    MUSTER_RETURN_IF_ERROR(workers());
    MUSTER_RETURN_IF_ERROR(copy());
    return evaluation();
  }

 private:
  // An error at the option, or at the section around it, or at the file.
  template <typename... Args>
  Error at(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    const std::string what = fmt::format(format, std::forward<Args>(args)...);
    while (true) {
      const auto place = places_.find(key);
      if (place != places_.end()) {
        return Error(ErrorKind::kJob, "{}: {}", place->second.text(), what);
      }
      if (key.empty()) return Error(ErrorKind::kJob, "{}", what);
      const size_t dot = key.rfind('.');
      key = dot == std::string_view::npos ? std::string_view() : key.substr(0, dot);
    }
  }

  bool changed(const Option& option) const { return !(option.get(job_) == option.get(defaults_)); }
  bool changed(std::string_view key) const { return changed(*option_table().find(key)); }

  // What the table says: an option for other kinds than the one chosen.
  Status without_effect() const {
    const Table& table = option_table();
    for (const auto& option : table.options) {
      if (!changed(option)) continue;
      // What it is for may itself be for something: sync.pushes for a sync.mode, that for a
      // strategy.
      for (const Option* link = &option; link->only; link = table.find(link->only->key)) {
        const Option& other = *table.find(link->only->key);
        const std::string chosen = other.get(job_).text();
        // A name that is registered in C++ may use any option.
        if (std::ranges::find(other.choices, chosen) == other.choices.end()) continue;
        const auto& values = link->only->values;
        if (std::ranges::find(values, chosen) != values.end()) continue;
        return at(option.key, "{} has no effect with {} {}; it is for {}; remove it", option.key,
                  other.key, chosen, values.empty() ? "one registered in C++" : join_words(values));
      }
    }
    return {};
  }

  Status model() const {
    const auto& m = job_.model;
    std::vector<std::string> named;
    if (!m.zoo.empty()) named.emplace_back("model.zoo");
    if (!m.use.empty()) named.emplace_back("model.use");
    if (!m.layers.is_null()) named.emplace_back("model.layers");
    if (!m.file.empty()) named.emplace_back("model.file");
    if (named.empty()) {
      return at("model",
                "the job has no model; set model.zoo, model.use, model.layers or model.file");
    }
    if (named.size() > 1) {
      return at(named.back(), "{} are both set; keep one", join_words(named));
    }
    if (m.layers.is_list() && m.layers.items().empty()) {
      return at("model.layers", "model.layers is empty; list at least one layer");
    }
    if (!m.args.is_null() && !m.layers.is_null()) {
      return at("model.args", "model.args has no effect with model.layers; each layer has its own");
    }
    if (m.loss == "file" && m.file.empty()) {
      return at("model.loss",
                "model.loss file is the loss that is part of model.file; set that too");
    }
    const auto& train = job_.data.train;
    const bool value = train.target == "value" && (train.format == "csv" || has_fields(train));
    if (value && m.loss == "cross_entropy") {
      return at("model.loss",
                "model.loss cross_entropy needs classes, but data.train.target is "
                "value; set model.loss to mse");
    }
    return {};
  }

  Status source(const std::string& key, const SourceOptions& s) const {
    const auto name = [&](const char* option) { return key + "." + option; };
    if (s.format.empty()) {
      if (s == SourceOptions{} && key == "data.test") return {};
      std::vector<std::string> formats;
      for (const auto& format : source_formats()) formats.emplace_back(format.name);
      return at(name("format"), "{}.format is missing; set it to {}, or a format of yours", key,
                join_words(formats, "or"));
    }
    const auto needs = [&](const char* option, const std::string& value) -> Status {
      if (!value.empty()) return {};
      return at(name(option), "{} is missing; format {} needs it", name(option), s.format);
    };
    if (s.format == "idx") {
      MUSTER_RETURN_IF_ERROR(needs("images", s.images));
      MUSTER_RETURN_IF_ERROR(needs("labels", s.labels));
    }
    const auto with_path = formats_with_path();
    if (std::ranges::find(with_path, s.format) != with_path.end()) {
      MUSTER_RETURN_IF_ERROR(needs("path", s.path));
      MUSTER_RETURN_IF_ERROR(reading(key, s));
    }
    if (!has_labels(s)) {
      return at(name("label"),
                "{}: there is no field of that name, which stands for samples without a label: "
                "`muster predict --no-labels` takes them",
                name("label"));
    }
    if (s.separator.size() != 1) {
      return at(name("separator"), "{} must be one character, not '{}'", name("separator"),
                s.separator);
    }
    if (s.part.size() != 2 || !(s.part[0] < s.part[1])) {
      return at(name("part"), "{} must be two increasing fractions like [0, 0.9], not {}",
                name("part"), option_table().find(name("part"))->get(job_).to_line());
    }
    return {};
  }

  // For formats that come with Muster and have a path.
  Status reading(const std::string& key, const SourceOptions& s) const {
    const auto name = [&](const char* option) { return key + "." + option; };
    // Without the value: the job is also written to the run directory.
    if (has_credentials(s.path)) {
      return at(name("path"),
                "{} may not contain a user name, a password or a key; put them into ~/.netrc, or "
                "into ~/.aws/credentials for S3",
                name("path"));
    }
    if (!is_read_by_blocks(s)) {
      if (is_url(s.path)) {
        return at(name("path"), "{} is a URL, and format {} is read from files of this machine{}",
                  name("path"), s.format,
                  s.read == "whole" ? " with read: whole; remove that" : "");
      }
      return {};
    }
    for (const char* option : {"part", "limit"}) {
      if (!changed(name(option))) continue;
      return at(name(option), "{} is not possible for data that is read by blocks{}", name(option),
                s.format == "csv" || s.format == "libsvm" ? "; remove it, or set read: whole"
                                                          : "; remove it");
    }
    return {};
  }

  // A format that is registered in C++ may be.
  bool trains_on_blocks() const {
    const auto& train = job_.data.train;
    const auto& formats = source_formats();
    return is_read_by_blocks(train) ||
           std::ranges::find(formats, train.format, &SourceFormat::name) == formats.end();
  }

  // What was found is told in the commit of a step, which is then computed again. Steps that are
  // committed together, and what lanes have pushed to servers, cannot be.
  Status damage() const {
    const auto& data = job_.data;
    if (data.on_damage == "stop") return {};
    if (!trains_on_blocks()) {
      return at("data.on_damage",
                "data.on_damage {} is for data that is read by blocks, and data.train is not{}",
                data.on_damage,
                data.train.format == "csv" || data.train.format == "libsvm"
                    ? "; set data.train.read: blocks, or remove it"
                    : "; remove it");
    }
    if (job_.sync.strategy != "lockstep") {
      return at("data.on_damage",
                "data.on_damage {} needs sync.strategy lockstep, not {}: only there is a step in "
                "which damage is found computed again; remove it",
                data.on_damage, job_.sync.strategy);
    }
    if (has_tables(job_)) {
      return at("data.on_damage",
                "data.on_damage {} is not possible with tables: what lanes have told the rows in a "
                "step cannot be taken back; remove it",
                data.on_damage);
    }
    return {};
  }

  Status order() const {
    const auto& data = job_.data;
    const bool train = trains_on_blocks();
    const bool any = train || is_read_by_blocks(data.test);
    if (data.order == "strata" && !train) {
      return at("data.order",
                "data.order strata is for data that is read by blocks, and data.train is read as a "
                "whole{}",
                data.train.format == "csv" || data.train.format == "libsvm"
                    ? "; set data.train.read: blocks, or remove it"
                    : "; remove it");
    }
    for (const char* key : {"data.window", "data.homes"}) {
      if (!changed(key) || (train && data.order != "full")) continue;
      return at(key, "{} has no effect without data.order strata; remove it", key);
    }
    for (const char* key : {"data.block", "data.memory", "data.requests", "data.cache",
                            "data.cache_size", "data.index"}) {
      if (!changed(key) || any) continue;
      return at(key, "{} is for data that is read by blocks, and none is; remove it", key);
    }
    if (data.cache_size > 0 && data.cache.empty()) {
      return at("data.cache_size", "data.cache_size has no effect without data.cache; remove it");
    }
    return {};
  }

  Status copy() const {
    const std::string& to = job_.checkpoint.to;
    // Without the value, as with the path of data.
    if (has_credentials(to)) {
      return at("checkpoint.to",
                "checkpoint.to may not contain a user name, a password or a key; put them into "
                "~/.aws/credentials");
    }
    if (is_url(to) && !to.starts_with("s3://") && !to.starts_with("file:///")) {
      // What follows a '?' may be a signature.
      return at("checkpoint.to",
                "checkpoint.to '{}': checkpoints can be sent to s3://BUCKET/PREFIX or a directory",
                to.substr(0, to.find('?')));
    }
    if (has_wildcard(to)) {
      return at("checkpoint.to", "checkpoint.to '{}' must not contain * or ?", to);
    }
    return {};
  }

  Status length() const {
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '_' || c == '-' || c == '.';
    };
    const std::string& n = job_.name;
    if (n.empty() || n.size() > 100 || n[0] == '.' || n[0] == '-' ||
        !std::ranges::all_of(n, letter)) {
      return at("name",
                "name '{}' cannot begin a directory's name; use letters, digits, '-', '_' "
                "and '.'",
                n);
    }
    if (job_.runs.empty()) return at("runs", "runs is empty; name a directory");
    if (job_.batch < job_.lanes) {
      return at(places_.contains("batch") ? "batch" : "lanes",
                "batch {} is smaller than lanes {}; each lane needs a sample: raise batch or lower "
                "lanes",
                job_.batch, job_.lanes);
    }
    if (job_.passes == 0 && job_.steps == 0 && job_.time == 0) {
      return at("passes", "the job has no end; set passes, steps or time");
    }
    if (job_.data.loader.threads == 0 && changed("data.loader.ahead")) {
      return at("data.loader.ahead",
                "data.loader.ahead has no effect with data.loader.threads 0; remove it");
    }
    return {};
  }

  Status optimizer() const {
    const auto& o = job_.optimizer;
    if (o.kind == "muon" && o.momentum == 0) {
      return at("optimizer.momentum",
                "optimizer.kind muon needs momentum; set optimizer.momentum, for example to 0.95");
    }
    if (o.nesterov && o.momentum == 0) {
      return at("optimizer.nesterov",
                "optimizer.nesterov needs momentum; set optimizer.momentum, for example to 0.9");
    }
    if (o.nesterov && o.dampening != 0) {
      return at("optimizer.dampening",
                "optimizer.dampening must be 0 with optimizer.nesterov; remove one");
    }
    if (o.dampening != 0 && o.momentum == 0) {
      return at("optimizer.dampening",
                "optimizer.dampening has no effect without optimizer.momentum; remove it");
    }
    const bool adapts = o.kind == "lars" || o.kind == "lamb";  // their rates heed decay_on too
    if (changed("optimizer.decay_on") && o.weight_decay == 0 && !adapts) {
      return at("optimizer.decay_on",
                "optimizer.decay_on has no effect without optimizer.weight_decay; remove it");
    }
    return {};
  }

  Status schedule() const {
    const auto& s = job_.optimizer.schedule;
    if (s.kind == "step" && s.every == 0) {
      return at("optimizer.schedule.every",
                "optimizer.schedule.every is missing; schedule step needs it");
    }
    const bool has_end = s.kind == "linear" || s.kind == "cosine";
    if (has_end && s.steps == 0 && job_.passes == 0 && job_.steps == 0) {
      return at("optimizer.schedule.steps",
                "optimizer.schedule.steps is missing; schedule {} needs it when only time ends the "
                "job",
                s.kind);
    }
    if (has_end && s.steps > 0 && s.warmup >= s.steps) {
      return at("optimizer.schedule.warmup",
                "optimizer.schedule.warmup {} must be less than optimizer.schedule.steps {}",
                s.warmup, s.steps);
    }
    return {};
  }

  Status tables() const {
    const auto& t = job_.tables;
    if (!t.disk.empty() && t.memory < kLeastMemoryWithDisk) {
      return at("tables.disk",
                "tables.disk is for rows that do not fit into tables.memory: set that, to 4 MiB at "
                "least");
    }
    const bool all_on_servers = is_on_servers(job_.sync.strategy);
    const bool come_and_go =
        t.admit_after > 1 || t.admit_probability < 1 || t.evict_after > 0 || t.most_rows > 0;
    if (t.width == 0) {
      if (t == TablesOptions{} || (all_on_servers && !come_and_go)) return {};
      return at("tables.width", "tables.width is missing: how many numbers each row has");
    }
    if (job_.sync.strategy != "lockstep" && !all_on_servers) {
      return at("sync.strategy", "tables need sync.strategy lockstep or server, not {}",
                job_.sync.strategy);
    }
    if (all_on_servers && t.staleness > 0) {
      return at("tables.staleness",
                "tables.staleness needs sync.strategy lockstep; with server, rows are as late as "
                "the model itself (sync.mode, sync.staleness)");
    }
    if (job_.not_finite == "skip") {
      return at("not_finite", "tables need not_finite: stop; remove it");
    }
    if (job_.lanes > kMostLanesOfTables) {
      return at("lanes", "with tables there can be {} lanes at most, not {}", kMostLanesOfTables,
                job_.lanes);
    }
    if (t.admit_after > 1 && t.evict_after == 0) {
      return at("tables.evict_after",
                "tables.admit_after {} needs tables.evict_after: keys are counted until they get a "
                "row, and without an age those that never do would be counted for ever",
                t.admit_after);
    }
    if (t.most_rows > 0 && t.most_rows < t.shards) {
      return at("tables.most_rows",
                "tables.most_rows {} is less than tables.shards, and each of {} shards keeps a row "
                "at least; set it to {} or more, or lower tables.shards",
                t.most_rows, t.shards, t.shards);
    }
    return {};
  }

  Status sync() const {
    const auto& s = job_.sync;
    if (s.bits != 32 && s.bits != 16 && s.bits != 8 && s.bits != 4 && s.bits != 2) {
      return at("sync.bits", "sync.bits must be 32, 16, 8, 4 or 2, not {}", s.bits);
    }
    if (s.bits != 32 && s.reduction != "exact") {
      return at("sync.bits", "sync.bits {} needs sync.reduction exact, not {}", s.bits,
                s.reduction);
    }
    if (s.bits == 32 && s.rotation != "none") {
      return at("sync.rotation",
                "sync.rotation has no effect with sync.bits 32; remove it, or set sync.bits to 16, "
                "8, 4 or 2");
    }
    if (s.lane_groups > 0 && s.bits == 32) {
      return at("sync.lane_groups", "sync.lane_groups has no effect with sync.bits 32; remove it");
    }
    if (s.lane_groups > 0 && job_.lanes % s.lane_groups != 0) {
      return at("sync.lane_groups",
                "{} lanes cannot be dealt out evenly to {} groups; set sync.lane_groups to a "
                "divisor of lanes",
                job_.lanes, s.lane_groups);
    }
    if (s.strategy == "lockstep" || s.strategy == "auto") return {};
    if (s.reduction != "exact") {
      return at("sync.reduction", "sync.strategy {} needs sync.reduction exact, not {}", s.strategy,
                s.reduction);
    }
    if (is_on_servers(s.strategy)) return on_servers();
    const auto own_or = [&](const char* key, double value) -> Status {
      if (value == -1 || value >= 0) return {};
      return at(key, "{} must be at least 0, or -1 for that of the strategy, not {}", key, value);
    };
    MUSTER_RETURN_IF_ERROR(own_or("sync.outer.lr", s.outer.lr));
    MUSTER_RETURN_IF_ERROR(own_or("sync.outer.momentum", s.outer.momentum));
    const bool gradients = sends_gradients(s.strategy);
    const bool then_lockstep = s.strategy == "local-then-lockstep";
    if (then_lockstep && s.bits != 32) {
      return at("sync.bits", "sync.bits must be 32 with sync.strategy local-then-lockstep, not {}",
                s.bits);
    }
    if ((gradients || s.strategy == "sparseloco") && s.bits != 32) {
      return at("sync.bits", "sync.bits has no effect with sync.strategy {}; remove it",
                s.strategy);
    }
    if (gradients && job_.not_finite == "skip") {
      return at("not_finite",
                "sync.strategy {} needs not_finite: stop, because gradients are added to what was "
                "not sent before, and cannot be left out afterwards; remove it",
                s.strategy);
    }
    const bool sums_weights = s.strategy == "gossip" || s.strategy == "sparta";
    if (sums_weights && s.bits < 8) {
      return at("sync.bits", "sync.bits must be 32, 16 or 8 with sync.strategy {}, not {}",
                s.strategy, s.bits);
    }
    if (sums_weights && s.rotation != "none") {
      return at("sync.rotation", "sync.rotation has no effect with sync.strategy {}; remove it",
                s.strategy);
    }
    if (then_lockstep && job_.passes <= 0 && job_.steps <= 0) {
      return at("sync.strategy",
                "sync.strategy local-then-lockstep has to know how many steps the job has; set "
                "passes or steps");
    }
    if (s.strategy == "muloco" && job_.optimizer.kind != "muon") {
      return at("optimizer.kind",
                "sync.strategy muloco needs optimizer.kind muon, not {}; with others take diloco",
                job_.optimizer.kind);
    }
    if (s.strategy == "streaming" && s.period % s.fragments != 0) {
      return at("sync.fragments",
                "a period of {} steps cannot be divided into {} equal parts; set sync.fragments to "
                "a divisor of sync.period",
                s.period, s.fragments);
    }
    const int64_t steps = steps_per_commit(s);
    if (job_.lanes * steps > kMostResults) {
      return at(
          gradients ? "sync.rounds" : "sync.period",
          "{} steps in a commit with {} lanes: the losses of {} lanes and steps would have to "
          "be told at its end, more than {}; lower one of them",
          steps, job_.lanes, job_.lanes * steps, kMostResults);
    }
    if (job_.lanes % s.replicas != 0) {
      return at("sync.replicas",
                "{} lanes cannot be dealt out evenly to {} replicas; set sync.replicas to a "
                "divisor of lanes",
                job_.lanes, s.replicas);
    }
    return {};
  }

  Status on_servers() const {
    const auto& s = job_.sync;
    const auto& o = job_.optimizer;
    if (o.kind != "sgd" && o.kind != "adagrad" && o.kind != "adam") {
      return at("optimizer.kind",
                "sync.strategy server needs optimizer.kind sgd, adagrad or adam, "
                "not {}",
                o.kind);
    }
    MUSTER_RETURN_IF_ERROR(is_elastic(s) ? elastic() : not_elastic());
    if (o.momentum != 0 && !is_elastic(s)) {
      return at("optimizer.momentum", "sync.strategy server has no momentum{}; remove it",
                is_asynchronous(s) ? ": pushes that come late have the same effect" : "");
    }
    if (o.weight_decay != 0) {
      return at("optimizer.weight_decay", "sync.strategy server has no weight decay; remove it");
    }
    if (s.bits != 32) {
      return at("sync.bits", "sync.bits has no effect with sync.strategy server; remove it");
    }
    if (job_.not_finite == "skip") {
      return at("not_finite", "sync.strategy server needs not_finite: stop; remove it");
    }
    return is_asynchronous(s) ? asynchronous() : steps_on_servers();
  }

  Status steps_on_servers() const {
    for (const char* key : {"optimizer.clip.norm", "optimizer.clip.value"}) {
      if (!changed(key)) continue;
      return at(key,
                "{} is for the whole gradient of a step, and with sync.mode sync that is added up "
                "in parts, on servers; remove it, or use sync.strategy lockstep",
                key);
    }
    for (const char* key :
         {"sync.period", "sync.late", "sync.fetch", "sync.push_every", "sync.rounding"}) {
      if (changed(key)) return at(key, "{} has no effect with sync.mode sync; remove it", key);
    }
    if (job_.lanes > kMostLanesOfTables) {
      return at("lanes", "with sync.mode sync there can be {} lanes at most, not {}",
                kMostLanesOfTables, job_.lanes);
    }
    return {};
  }

  Status asynchronous() const {
    const auto& s = job_.sync;
    if (s.late == "compensate" && s.mode != "async" && s.mode != "ssp") {
      return at("sync.late",
                "sync.late compensate needs sync.mode async or ssp, in which each push is an "
                "update of its own, not {}",
                s.mode);
    }
    if (job_.lanes % pushes_of(s) != 0) {
      return at("sync.pushes",
                "an update has {} pushes, and a step {}; set sync.pushes to a divisor of lanes",
                s.pushes, job_.lanes);
    }
    if (s.period % steps_of_task(s) != 0) {
      return at("sync.period",
                "sync.period is {}, and a task has {} steps; set sync.period to a multiple of {}",
                s.period, steps_of_task(s), is_elastic(s) ? "sync.fetch" : "sync.push_every");
    }
    if (!is_elastic(s) && s.push_every > 1) {
      if (job_.tables.width > 0) {
        return at("sync.push_every",
                  "sync.push_every must be 1 in a job with rows of tables, which are pushed after "
                  "each step; remove it, or take a model without tables");
      }
      if (s.late == "compensate") {
        return at(
            "sync.push_every",
            "sync.late compensate needs sync.push_every 1: its formula is for the gradient of "
            "one step");
      }
    }
    if (tasks_of(s, job_.lanes, s.period) > kMostResults) {
      return at("sync.period", "{} steps with {} lanes are more than {} tasks; lower one of them",
                s.period, job_.lanes, kMostResults);
    }
    return {};
  }

  Status elastic() const {
    const auto& s = job_.sync;
    const auto& o = job_.optimizer;
    if (o.kind != "sgd") {
      return at("optimizer.kind", "sync.mode easgd needs optimizer.kind sgd, not {}", o.kind);
    }
    if (o.momentum != 0 && !o.nesterov) {
      return at("optimizer.momentum",
                "sync.mode easgd has Nesterov's momentum alone; set optimizer.nesterov, or remove "
                "optimizer.momentum");
    }
    if (job_.tables.width > 0) {
      return at("tables.width",
                "sync.mode easgd cannot train rows of tables, of which each replica would have its "
                "own; take another sync.mode, or a model without tables");
    }
    if (s.late != "full") {
      return at("sync.late", "sync.late has no effect with sync.mode easgd; remove it");
    }
    if (s.outer.lr != -1 && s.outer.lr < 0) {
      return at("sync.outer.lr",
                "sync.outer.lr must be at least 0, or -1 for that of the strategy, not {}",
                s.outer.lr);
    }
    return {};
  }

  Status not_elastic() const {
    if (job_.sync.outer.lr == -1) return {};
    return at("sync.outer.lr", "sync.outer.lr has no effect with sync.mode {}; remove it",
              job_.sync.mode);
  }

  Status workers() const {
    const auto& w = job_.workers;
    const auto& s = job_.sync;
    const auto too_many = [&](int64_t shared, std::string_view what, std::string_view key) {
      return at("workers.min",
                "workers.min is {}, but there are only {} {} to share; lower it or raise {}", w.min,
                shared, what, key);
    };
    const bool replicas =
        s.strategy != "lockstep" && s.strategy != "auto" && !is_on_servers(s.strategy);
    if (replicas && w.min > s.replicas) {
      return too_many(s.replicas, "replicas", "sync.replicas");
    }
    if (s.lane_groups > 0 && w.min > s.lane_groups) {
      return too_many(s.lane_groups, "groups of lanes", "sync.lane_groups");
    }
    if (w.min > job_.lanes) return too_many(job_.lanes, "lanes", "lanes");
    if (w.max != 0 && w.max < w.min) {
      return at("workers.max", "workers.max {} is below workers.min {}; raise it, or set it to 0",
                w.max, w.min);
    }
    if (w.heartbeat * 2 > w.lease) {
      return at("workers.heartbeat",
                "workers.heartbeat {} is more than half of workers.lease {}: one heartbeat that "
                "comes late would end the lease; lower it or raise the lease",
                duration_text(w.heartbeat), duration_text(w.lease));
    }
    return {};
  }

  Status evaluation() const {
    const auto& early = job_.early_stop;
    if (early.least != 0 && early.patience == 0) {
      return at("early_stop.least",
                "early_stop.least has no effect without early_stop.patience; remove it");
    }
    if (!job_.data.test.format.empty()) {
      if (early.patience > 0 && job_.eval.every.value == 0) {
        return at("early_stop.patience",
                  "early_stop.patience needs evaluations, but eval.every is never");
      }
      return {};
    }
    for (const char* key :
         {"early_stop.patience", "eval.every", "eval.batch", "eval.samples", "best_by"}) {
      if (changed(key))
        return at(key, "{} has no effect without data.test; remove it or name test data", key);
    }
    return {};
  }

  const Job& job_;
  const Places& places_;
  const Job defaults_;
};

}  // namespace

Status validate(const Job& job, const Places& places) { return Rules(job, places).check(); }

}  // namespace muster::config

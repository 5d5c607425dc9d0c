// How many rows a server's tables hold, in how much memory and on how much disk, and how fast they
// are: one thread that applies pushes and reads, as a server does, without any network.
//
//   muster_ps_scale --rows 200M --width 8 --memory 20GiB
//   muster_ps_scale --rows 1G --width 8 --memory 8GiB --disk /scratch --keys zipf
//
// First each row gets an update. Then come batches of updates, then batches of reads; rows of the
// next batches are fetched from disk meanwhile. A part of the keys is also in a table in memory; at
// the end these are compared.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "muster/base/check.h"
#include "muster/config/units.h"
#include "muster/ps/cold/rocks_rows.h"
#include "muster/ps/table_data.h"

namespace muster::ps {
namespace {

struct Arguments {
  std::string rows = "1M";
  uint32_t width = 8;
  std::string optimizer = "row_adagrad";
  std::string memory = "4GiB";
  std::string disk;
  ShardNumber shards = 64;
  size_t batch = 4096;
  size_t batches = 1000;
  std::string keys = "uniform";
};

constexpr std::chrono::seconds kShowEvery{10};
constexpr size_t kAhead = 8;          // batches whose rows are being fetched
constexpr uint64_t kCompared = 1000;  // every so many keys one is compared

uint64_t parse_count(const std::string& text) {
  size_t end = 0;
  const double number = std::stod(text, &end);
  const std::string unit = text.substr(end);
  return static_cast<uint64_t>(number * (unit == "G" ? 1e9 : unit == "M" ? 1e6 : 1));
}

// The keys of one shard in a batch.
struct Part {
  ShardNumber shard;
  std::vector<uint64_t> keys;
};
using Batch = std::vector<Part>;

class Scale {
 public:
  explicit Scale(const Arguments& arguments)
      : arguments_(arguments),
        rows_(parse_count(arguments.rows)),
        options_(1, table_options(arguments)),
        memory_(static_cast<size_t>(config::parse_bytes(arguments.memory).value_or(0))),
        slabs_(arguments.disk.empty() ? memory_ : memory_ - memory_ / 8) {
    if (!arguments.disk.empty()) open_disk();
    for (ShardNumber i = 0; i < arguments.shards; ++i) {
      ColdTier* const cold = cold_ ? &*cold_ : nullptr;
      data_.push_back(std::make_unique<TableData>(i, arguments.shards, options_, slabs_, cold));
      compared_.push_back(std::make_unique<TableData>(i, arguments.shards, options_, beside_));
    }
  }

  int run() {
    uint64_t next = 0;
    measure("rows made", (rows_ + arguments_.batch - 1) / arguments_.batch, true, [&] {
      std::vector<uint64_t> keys;
      for (; keys.size() < arguments_.batch && next < rows_; ++next) keys.push_back(next);
      return by_shard(std::move(keys));
    });
    measure("rows updated", arguments_.batches, true, [&] { return draw(); });
    measure("rows read", arguments_.batches, false, [&] { return draw(); });
    return compare() ? 0 : 1;
  }

 private:
  static TableOptions table_options(const Arguments& arguments) {
    const auto rule = rule_named(arguments.optimizer);
    MUSTER_CHECK(rule.ok(), rule.error().message());
    TableOptions options;
    options.name = "scale";
    options.width = arguments.width;
    options.optimizer.rule = *rule;
    return options;
  }

  void open_disk() {
    auto opened = open_rocks({arguments_.disk, "scale", memory_ / 8});
    MUSTER_CHECK(opened.ok(), opened.error().message());
    disk_ = std::move(opened).value();
    cold_.emplace(*disk_);
    fetcher_.emplace(*disk_, [] {});
  }

  Batch by_shard(std::vector<uint64_t> keys) const {
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    std::vector<std::vector<uint64_t>> shards(arguments_.shards);
    for (const uint64_t key : keys) shards[shard_of(key, arguments_.shards)].push_back(key);
    Batch batch;
    for (ShardNumber i = 0; i < arguments_.shards; ++i) {
      if (!shards[i].empty()) batch.push_back({i, std::move(shards[i])});
    }
    return batch;
  }

  // Uniform, or with a probability that is that of 1 / rank.
  Batch draw() {
    std::vector<uint64_t> keys(arguments_.batch);
    for (uint64_t& key : keys) {
      if (arguments_.keys == "zipf") {
        const double u = static_cast<double>(random_() >> 11) * 0x1p-53;
        key = static_cast<uint64_t>(std::exp(u * std::log(static_cast<double>(rows_)))) % rows_;
      } else {
        key = random_() % rows_;
      }
    }
    return by_shard(std::move(keys));
  }

  uint64_t fetch(const Batch& batch, bool update) {
    uint64_t last = 0;
    for (const auto& part : batch) {
      if (!fetcher_) break;
      last = std::max(last, data_[part.shard]->table(0).fetch(part.keys, update, *fetcher_));
    }
    return last;
  }

  void take_fetched() {
    if (!fetcher_) return;
    for (auto& fetched : fetcher_->take()) {
      MUSTER_CHECK(fetched.status.ok(), fetched.status.error().message());
      data_[fetched.part.shard]->table(0).arrive(fetched);
    }
  }

  // Some batches are made ahead, so that their rows come meanwhile.
  template <typename Make>
  void measure(const char* what, uint64_t batches, bool update, Make make) {
    const auto begin = std::chrono::steady_clock::now();
    std::deque<std::pair<Batch, uint64_t>> ahead;
    uint64_t rows = 0;
    auto shown = begin;
    uint64_t shown_rows = 0;
    for (uint64_t made = 0, done = 0; done < batches; ++done) {
      for (; made < batches && made < done + kAhead; ++made) {
        Batch batch = make();
        const uint64_t number = fetch(batch, update);
        ahead.emplace_back(std::move(batch), number);
      }
      const auto& [batch, number] = ahead.front();
      for (take_fetched(); fetcher_ && !fetcher_->taken(number); take_fetched()) {
        std::this_thread::yield();
      }
      for (const auto& part : batch) rows += update ? apply(part) : read(part);
      ahead.pop_front();
      if (const auto now = std::chrono::steady_clock::now(); now - shown >= kShowEvery) {
        const std::chrono::duration<double> since = now - shown;
        fmt::print(stderr, "{}: {} of {} batches, {:.2f} million rows a second\n", what, done + 1,
                   batches, static_cast<double>(rows - shown_rows) / since.count() / 1e6);
        shown = now;
        shown_rows = rows;
      }
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    report(what, rows, seconds.count());
  }

  size_t apply(const Part& part) {
    gradients_.assign(part.keys.size() * arguments_.width, 0.01F);
    push_to(*data_[part.shard], part.keys);
    some_.clear();
    std::ranges::copy_if(part.keys, std::back_inserter(some_),
                         [](uint64_t key) { return key % kCompared == 0; });
    gradients_.resize(some_.size() * arguments_.width);
    if (!some_.empty()) push_to(*compared_[part.shard], some_);
    return part.keys.size();
  }
  void push_to(TableData& data, std::span<const uint64_t> keys) {
    const auto applied = data.apply(push_bytes({.lr = 0.05}, keys, gradients_));
    MUSTER_CHECK(applied.ok(), applied.error().message());
  }
  size_t read(const Part& part) {
    weights_.resize(part.keys.size() * arguments_.width);
    data_[part.shard]->table(0).read(part.keys, weights_.data());
    return part.keys.size();
  }

  void report(const char* what, uint64_t rows, double seconds) {
    fmt::print("{}: {} in {:.1f} s, {:.2f} million a second\n", what, rows, seconds,
               static_cast<double>(rows) / seconds / 1e6);
    uint64_t in_memory = 0;
    ColdTier::Counts counts;
    if (cold_) {
      counts = cold_->counts();
      in_memory = counts.in_memory;
    } else {
      for (const auto& data : data_) in_memory += data->table(0).rows();
    }
    const auto each = [](uint64_t bytes, uint64_t of) {
      return of == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(of);
    };
    fmt::print("  in memory {} rows, {:.1f} bytes each ({:.1f} reserved, {} MiB in all)\n",
               in_memory, each(slabs_.used(), in_memory), each(slabs_.reserved(), in_memory),
               slabs_.reserved() >> 20);
    if (cold_) {
      const ColdUse use = disk_->use();
      fmt::print(
          "  on disk {} rows, {:.1f} bytes each, and {:.1f} of memory; {} written, {} fetched, {} "
          "keys looked up late\n",
          counts.on_disk, each(use.disk, counts.on_disk), each(use.memory, counts.on_disk),
          counts.written, counts.fetched, counts.late);
    }
    std::fflush(stdout);
  }

  bool compare() {
    uint64_t different = 0;
    std::vector<float> expected(arguments_.width);
    std::vector<float> found(arguments_.width);
    for (uint64_t key = 0; key < rows_; key += kCompared) {
      const ShardNumber shard = shard_of(key, arguments_.shards);
      compared_[shard]->table(0).read(std::span(&key, 1), expected.data());
      data_[shard]->table(0).read(std::span(&key, 1), found.data());
      if (expected != found) ++different;
    }
    fmt::print("{} of {} rows that were compared differ\n", different,
               (rows_ + kCompared - 1) / kCompared);
    return different == 0;
  }

  const Arguments arguments_;
  const uint64_t rows_;
  const std::vector<TableOptions> options_;
  const size_t memory_;
  Slabs slabs_;
  Slabs beside_;
  std::unique_ptr<ColdRows> disk_;
  std::optional<ColdTier> cold_;
  std::optional<RowFetcher> fetcher_;
  std::vector<std::unique_ptr<TableData>> data_;
  std::vector<std::unique_ptr<TableData>> compared_;
  std::mt19937_64 random_{1};
  std::vector<float> gradients_;
  std::vector<float> weights_;
  std::vector<uint64_t> some_;
};

}  // namespace
}  // namespace muster::ps

int main(int argc, char** argv) {
  muster::ps::Arguments arguments;
  CLI::App app("How many rows a server's tables hold, and how fast they are.");
  app.add_option("--rows", arguments.rows, "as 200M or 1G");
  app.add_option("--width", arguments.width, "weights of a row");
  app.add_option("--optimizer", arguments.optimizer, "of the table");
  app.add_option("--memory", arguments.memory, "as 20GiB, at most");
  app.add_option("--disk", arguments.disk, "a directory for rows that do not fit");
  app.add_option("--shards", arguments.shards, "of the table");
  app.add_option("--batch", arguments.batch, "keys");
  app.add_option("--batches", arguments.batches, "of updates, and of reads");
  app.add_option("--keys", arguments.keys, "uniform or zipf")
      ->check(CLI::IsMember({"uniform", "zipf"}));
  CLI11_PARSE(app, argc, argv);
  return muster::ps::Scale(arguments).run();
}

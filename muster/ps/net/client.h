// A worker's side of parameter servers: reads rows and pushes gradients, whichever servers there
// are. A server that fails costs waiting, and nothing else: reads go to whoever is primary next,
// and pushes are repeated until they are answered, and applied once (push_queue.h).
//
// A thread of its own, `ps-client`, has the connections. Safe for concurrent use; pushes of one
// thread to one row keep their order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/hash.h"
#include "muster/base/result.h"
#include "muster/ps/net/control.h"
#include "muster/ps/shared_bytes.h"
#include "muster/ps/table_data.h"

namespace muster::ps {

// Rows that were asked for. Made by Client::begin_read.
class RowRead {
 public:
  // Where they are when finish() has returned: width floats for each key, in the order of the keys.
  const std::vector<float>& weights() const { return weights_; }
  // The clocks (TableData::clock) of the shards that have keys of these, in the order of their
  // numbers.
  std::vector<int64_t> clocks() const;

 private:
  friend class Client;
  struct Part {
    uint64_t request = 0;
    ShardNumber shard = 0;
    std::vector<uint64_t> keys;
    std::vector<uint32_t> places;  // of the keys in the whole
    int64_t clock = 0;
  };
  uint32_t table_ = 0;
  int64_t clock_ = 0;
  bool exactly_ = false;
  size_t width_ = 0;
  std::vector<Part> parts_;
  size_t unanswered_ = 0;
  std::vector<float> weights_;
};

struct ClientLimits {
  // In which a hash or save gets no further shard: then it fails.
  Duration silence = std::chrono::minutes(2);
  size_t largest_message = kLargestMessage;  // bytes
  // For which something is asked of a server without a connection to it, while the registry hears
  // from it: then everything fails, with an error of the kind kMachine that names the server.
  Duration unreachable = std::chrono::seconds(30);
};

class Client {
 public:
  // Waits until the registry has answered and there are servers, at most so long. `clock` must
  // outlive it.
  static Result<std::unique_ptr<Client>> connect(const std::string& registry, const Clock& clock,
                                                 Duration timeout, ClientLimits limits = {});
  // What was not answered may or may not be applied: wait() first.
  ~Client();

  const TablesSetup& setup() const;

  // Rows as they are when that many steps are committed, or later (TableData::clock); with 0, as
  // they are. `exactly`: not later, as far as shards know (TableData::knows). Keys may be in any
  // order, and several times.
  Result<std::shared_ptr<RowRead>> begin_read(uint32_t table, std::span<const uint64_t> keys,
                                              int64_t clock = 0, bool exactly = false);
  Status finish(RowRead& read);
  // False: not after that long.
  Result<bool> finish_within(RowRead& read, Duration timeout);
  // Both.
  Result<std::vector<float>> read(uint32_t table, std::span<const uint64_t> keys,
                                  int64_t clock = 0);

  // A gradient for each key; no key twice. Returns when it is queued. `header`: kUpdate, kAdd or
  // kStage.
  Status push(PushHeader header, std::span<const uint64_t> keys, std::span<const float> gradients);
  // Of all shards. All lanes must have been answered before (wait()).
  Status commit(uint64_t era, int64_t step);
  // The order of tasks (task_order.h): an operation of it, which returns when it is queued; and how
  // it is, with everything that was answered before.
  Status push_order(uint64_t era, std::string_view operation);
  Result<OrderView> order(uint64_t worker, int64_t from, bool results);
  // To all shards.
  Status apply(uint64_t era, const PlacedPushes& pushes);
  // Until all pushes are answered.
  Status wait();

  // Is called while these three wait, by the thread that called them, for each shard or some; may
  // be empty.
  using Progress = std::function<void()>;
  // Of all rows of all tables, as they are.
  Result<Hash128> hash();
  // The same, and all rows, by shard (TableData::save_rows), after exactly that many steps of that
  // era (TableData). An error of the kind kInternal: there are more, or the others have begun
  // another era.
  Result<Hash128> hash(uint64_t era, int64_t clock, const Progress& progress = {});
  Result<std::vector<std::string>> save(uint64_t era, int64_t clock, const Progress& progress = {});
  // Puts these in place of what servers have; empty ones: begin anew.
  Status load(uint64_t era, std::span<const std::string> shards, const Progress& progress = {});
  // Of pushes and reads, with their headers.
  uint64_t sent_bytes() const;

 private:
  class Impl;
  struct WholeRead;
  struct OrderRead;
  struct Question;
  explicit Client(std::unique_ptr<Impl> impl);
  Result<std::shared_ptr<WholeRead>> read_all(uint64_t era, int64_t clock, bool contents,
                                              const Progress& progress);
  // All shards are at that clock of that era.
  static Status check_cut(const WholeRead& read, uint64_t era, int64_t clock);
  Status push_to_all(std::string push);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::ps

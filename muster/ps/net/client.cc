#include "muster/ps/net/client.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "muster/base/thread.h"
#include "muster/ps/by_shard.h"
#include "muster/ps/net/network.h"
#include "muster/ps/push_queue.h"
#include "muster/ps/questions.h"
#include "muster/ps/wire.h"

namespace muster::ps {

using namespace std::chrono_literals;

// All shards, or their hashes, that were asked for.
struct Client::WholeRead {
  uint64_t era = 0;
  int64_t clock = 0;
  bool contents = false;
  std::vector<WholeAnswer> shards;
  size_t unanswered = 0;
};

struct Client::OrderRead {
  uint64_t worker = 0;
  int64_t from = 0;
  bool results = false;
  bool answered = false;
  OrderView view;
};

namespace {

constexpr Duration kRetry = 20ms;    // of a connection
constexpr Duration kAskAgain = 5ms;  // what a server could not answer
constexpr Duration kRegistryRetry = 200ms;
constexpr Duration kAloneFor = 30s;
constexpr Duration kLostFor = 3s;             // then it is an error
constexpr Duration kAskStatus = 1s;           // how often the registry is asked who is there
constexpr Duration kHeardWithin = 5s;         // a server that the registry reaches
constexpr Duration kLongestTurn = 1s;         // what is beyond, this process was suspended
constexpr size_t kMostUnanswered = 64 << 20;  // bytes of pushes; then push() waits
constexpr size_t kHeader = 1024;              // of a message, besides what it carries, at most

// Each worker that is started again would meet these two again: their kinds end the job
// (launch/restarts.h).
Error too_large(ShardNumber shard, size_t most) {
  return Error(ErrorKind::kJob,
               "shard {} is too large to be sent: it is one message, of {} bytes at most; the job "
               "needs more tables.shards, from its beginning",
               shard, most);
}

Error rows_lost(ShardNumber shard) {
  return Error(ErrorKind::kCheckpoint,
               "the rows of shard {} are lost: every parameter server that had them has failed; go "
               "on from the last checkpoint with `muster resume`",
               shard);
}

}  // namespace

// A read of rows of one shard, or of all of it, or of the order.
struct Client::Question {
  std::variant<std::shared_ptr<RowRead>, std::shared_ptr<WholeRead>, std::shared_ptr<OrderRead>>
      what;
  size_t part = 0;  // of a RowRead
};

class Client::Impl final : NetworkListener, PushLinks, Questions<Client::Question>::Links {
 public:
  Impl(std::string registry, const Clock& clock, ClientLimits limits)
      : registry_address_(std::move(registry)),
        clock_(clock),
        limits_(limits),
        self_(draw_incarnation()) {}

  ~Impl() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    network_.wake();
    thread_.join();
  }

  Status start(Duration timeout) {
    thread_ = Thread("ps-client", [this] { run(); });
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return ready_ || failure_; });
    if (failure_) return *failure_;
    if (ready_) return {};
    return Error(
        ErrorKind::kIo, "no parameter servers after {} s: the registry at {} {}. Are they started?",
        seconds(timeout), registry_address_, setup_ ? "waits for more of them" : "does not answer");
  }

  const TablesSetup& setup() const { return *setup_; }
  const ClientLimits& limits() const { return limits_; }

  template <typename Done>
  Status wait_until(Done done) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || done(); });
    if (failure_) return *failure_;
    return {};
  }
  // False: it is not done after that long.
  template <typename Done>
  Result<bool> wait_for(Duration timeout, Done done) {
    std::unique_lock lock(mutex_);
    const bool over = changed_.wait_for(lock, timeout, [&] { return failure_ || done(); });
    if (failure_) return *failure_;
    return over;
  }

  // ---- What users' threads ask for.

  using Command = std::variant<std::shared_ptr<RowRead>, PushesByShard, std::shared_ptr<WholeRead>,
                               std::shared_ptr<OrderRead>>;

  Status post(Command command) {
    if (const auto* const pushes = std::get_if<PushesByShard>(&command)) {
      for (const auto& [shard, bytes] : *pushes) {
        if (bytes->size() + kHeader <= limits_.largest_message) continue;
        return too_large(shard, limits_.largest_message);
      }
    }
    {
      std::unique_lock lock(mutex_);
      if (const auto* const pushes = std::get_if<PushesByShard>(&command)) {
        changed_.wait(lock, [&] { return failure_ || unanswered_bytes_ < kMostUnanswered; });
        for (const auto& [shard, bytes] : *pushes) unanswered_bytes_ += bytes->size();
        unanswered_ += pushes->size();
      }
      if (failure_) return *failure_;
      commands_.push_back(std::move(command));
    }
    network_.wake();
    return {};
  }

  Status wait() {
    return wait_until([&] { return unanswered_ == 0; });
  }

  uint64_t sent_bytes() const {
    const std::lock_guard lock(mutex_);
    return told_bytes_;
  }

 private:
  struct ServerConnection {
    ConnectionId connection = 0;
    bool open = false;
    Moment retry_at;
    Duration missed{0};  // how long something was asked of it without a connection
  };

  // ---- The thread.

  void run() {
    while (true) {
      std::vector<Command> commands;
      {
        const std::lock_guard lock(mutex_);
        if (stopped_) return;
        commands.swap(commands_);
      }
      for (auto& command : commands) std::visit([&](auto& one) { take(one); }, command);
      const Moment now = clock_.now();
      connect_all(now);
      look_for_servers(now);
      look_for_connections(now);
      if (now >= retry_at_) retry(now);
      network_.turn(questions_.wants_retry() ? kAskAgain : kRetry / 2);
      publish();
    }
  }

  void take(std::shared_ptr<RowRead>& read) {
    for (size_t i = 0; i < read->parts_.size(); ++i) {
      questions_.ask(read->parts_[i].shard, {read, i});
    }
  }
  void take(PushesByShard& pushes) {
    for (auto& [shard, bytes] : pushes) {
      sizes_[shard].push_back(bytes->size());
      queue_->push(shard, std::move(bytes));
    }
  }
  void take(std::shared_ptr<WholeRead>& read) {
    for (ShardNumber shard = 0; shard < setup_->shards; ++shard) {
      questions_.ask(shard, {read});
    }
  }
  void take(std::shared_ptr<OrderRead>& read) { questions_.ask(kOrderShard, {read}); }

  // Questions::Links.
  const ServerKey* primary_of(ShardNumber shard) const override {
    return queue_->primary_of(shard);
  }
  bool ask(const ServerKey& to, uint64_t request, ShardNumber shard,
           const Question& question) override {
    const auto server = servers_.find(to);
    if (server == servers_.end() || !server->second.open) return false;
    auto bytes = std::visit(
        [&](const auto& read) {
          auto message = request_of(*read, question);
          message.shard = shard;
          message.epoch = queue_->epoch();
          message.request = request;
          return encode(message);
        },
        question.what);
    transmit(server->second, std::move(bytes));
    return true;
  }
  static ReadRequest request_of(const RowRead& read, const Question& question) {
    ReadRequest request;
    request.table = read.table_;
    request.clock = read.clock_;
    request.exactly = read.exactly_;
    request.keys = read.parts_[question.part].keys;
    return request;
  }
  static WholeRequest request_of(const WholeRead& read, const Question& /*question*/) {
    WholeRequest request;
    request.era = read.era;
    request.clock = read.clock;
    request.contents = read.contents;
    return request;
  }
  static OrderRequest request_of(const OrderRead& read, const Question& /*question*/) {
    OrderRequest request;
    request.worker = read.worker;
    request.from = read.from;
    request.results = read.results;
    return request;
  }

  void transmit(const ServerConnection& server, Packet message) {
    sent_bytes_ += message.size();
    network_.send(server.connection, std::move(message));
  }

  // PushLinks.
  void send(const ServerKey& to, ShardNumber shard, uint64_t epoch, const Push& push) override {
    const auto server = servers_.find(to);
    // It is sent when there is a connection.
    if (server == servers_.end() || !server->second.open) return;
    transmit(server->second, encode(PushRequest{shard, epoch, push}));
  }

  void connect_all(Moment now) {
    if (registry_ == 0 && now >= registry_retry_at_) {
      registry_ = network_.connect(registry_address_);
    }
    for (const auto& entry : map_.servers) {
      auto& server = servers_[entry.key];
      if (server.connection != 0 || now < server.retry_at) continue;
      server.connection = network_.connect(entry.address);
      connections_[server.connection] = entry.key;
    }
  }

  // Without a registry or servers nothing can be answered. They may be on their way, but not for
  // ever.
  void look_for_servers(Moment now) {
    if (registry_open_ && !map_.servers.empty()) {
      alone_since_.reset();
    } else if (!alone_since_) {
      alone_since_ = now;
    } else if (map_.epoch > 0 && now - *alone_since_ > kAloneFor) {
      fail(Error(ErrorKind::kMachine,
                 "no parameter server, or not their registry at {}, for {} s; the log of the "
                 "launcher or coordinator says what happened to them",
                 registry_address_, seconds(kAloneFor)));
    }
  }

  // A server that cannot be reached from here is removed by nobody, as long as the registry hears
  // it. Of one that is silent the registry decides, or all wait for it.
  void look_for_connections(Moment now) {
    const Duration passed = std::min(now - std::exchange(looked_, now), kLongestTurn);
    bool any = false;
    for (auto& [key, server] : servers_) {
      const bool missing = !server.open && (queue_->awaits(key) || questions_.awaits(key));
      server.missed = missing ? server.missed + passed : Duration{0};
      any |= server.missed > limits_.unreachable;
    }
    if (!any || !registry_open_ || now < ask_status_at_) return;
    ask_status_at_ = now + kAskStatus;
    network_.send(registry_, encode_control(AskStatus{}));
  }

  void compare(const ServersStatus& status) {
    for (const auto& one : status.servers) {
      const auto server = servers_.find(one.key);
      if (server == servers_.end() || server->second.missed <= limits_.unreachable) continue;
      if (one.heard_ago > kHeardWithin) {
        server->second.missed = Duration{0};  // it was away for all; it gets the whole time again
        continue;
      }
      return fail(Error(ErrorKind::kMachine,
                        "parameter server {} at {} could not be reached from here for {} s, though "
                        "the registry at {} hears from it: check the address on which it listens "
                        "(--host, --listen, or `address` in the hosts file), and firewalls between "
                        "the two machines",
                        one.key.id, one.address, seconds(limits_.unreachable), registry_address_));
    }
  }

  // Of what servers could not answer then.
  void retry(Moment now) {
    retry_at_ = now + kAskAgain;
    if (!queue_) return;
    queue_->retry();
    questions_.retry();
  }

  // ---- Network.

  void opened(ConnectionId connection) override {
    network_.send(connection, encode_control(Hello{false, {"", self_}}));
    if (connection == registry_) registry_open_ = true;
    const auto known = connections_.find(connection);
    if (known == connections_.end()) return;
    servers_[known->second].open = true;
    queue_->reconnected(known->second);
    questions_.repeat();
  }

  void closed(ConnectionId connection) override {
    if (connection == registry_) {
      registry_ = 0;
      registry_open_ = false;
      registry_retry_at_ = clock_.now() + kRegistryRetry;
    }
    const auto known = connections_.find(connection);
    if (known == connections_.end()) return;
    if (const auto server = servers_.find(known->second); server != servers_.end()) {
      server->second.connection = 0;
      server->second.open = false;
      server->second.retry_at = clock_.now() + kRetry;
    }
    questions_.disconnected(known->second);
    connections_.erase(known);
  }

  void received(ConnectionId connection, const Bytes& bytes) override {
    if (connection == registry_) return from_registry(*bytes);
    auto message = decode(bytes);
    if (!message.ok()) {
      network_.close(connection);
      return closed(connection);
    }
    const auto from = connections_.find(connection);
    if (from == connections_.end()) return;
    if (const auto* const answer = std::get_if<PushAnswer>(&*message)) {
      answered(*answer);
    } else if (const auto* const rows = std::get_if<ReadAnswer>(&*message)) {
      answered(*rows, from->second);
    } else if (auto* const whole = std::get_if<WholeAnswer>(&*message)) {
      answered(std::move(*whole), from->second);
    } else if (auto* const order = std::get_if<OrderAnswer>(&*message)) {
      answered(std::move(*order), from->second);
    }
  }

  void from_registry(std::string_view bytes) {
    auto message = decode_control(bytes);
    if (!message.ok()) return fail(message.error());
    if (auto* const setup = std::get_if<TablesSetup>(&*message)) {
      if (setup_) {
        auto same = check_same(*setup_, *setup, registry_address_);
        if (!same.ok()) fail(std::move(same).error());
        return;
      }
      if (auto checked = check(*setup); !checked.ok()) return fail(std::move(checked).error());
      queue_.emplace(self_, setup->shards, setup->copies, static_cast<PushLinks&>(*this));
      sizes_.resize(setup->shards);
      const std::lock_guard lock(mutex_);
      setup_ = std::move(*setup);
    } else if (const auto* const newest = std::get_if<NewMap>(&*message)) {
      if (queue_ && newest->map.epoch > map_.epoch) enter(newest->map);
    } else if (const auto* const status = std::get_if<ServersStatus>(&*message)) {
      compare(*status);
    }
  }

  void enter(const ServerMap& map) {
    for (const auto& entry : map_.servers) {
      if (map.find(entry.key) != nullptr) continue;
      const auto server = servers_.find(entry.key);
      if (server == servers_.end()) continue;
      connections_.erase(server->second.connection);
      network_.close(server->second.connection);
      servers_.erase(server);
    }
    map_ = map;
    lost_since_.reset();
    queue_->enter(map);
    questions_.repeat();
  }

  // Whoever had it may only be late to say so.
  void note_lost(ShardNumber shard) {
    const Moment now = clock_.now();
    if (!lost_since_) lost_since_ = now;
    if (now - *lost_since_ < kLostFor) return;
    fail(rows_lost(shard));
  }

  void answered(const PushAnswer& answer) {
    if (answer.verdict == PushVerdict::kLost) note_lost(answer.shard);
    const size_t before = queue_->unanswered();
    if (auto status = queue_->answered(answer); !status.ok()) {
      return fail(std::move(status).error());
    }
    // None if it is no shard of ours.
    for (size_t i = queue_->unanswered(); i < before; ++i) {
      auto& sizes = sizes_[answer.shard];
      answered_bytes_ += sizes.front();
      sizes.pop_front();
      ++answered_;
    }
  }

  // What was asked for, if it is of this kind and was served; else null. `part`: of a RowRead.
  template <typename Read, typename Answer>
  std::shared_ptr<Read> take_question(const Answer& answer, const ServerKey& from,
                                      size_t* part = nullptr) {
    Question* const question = questions_.find(answer.request, answer.shard);
    if (question == nullptr) return nullptr;
    auto* const read = std::get_if<std::shared_ptr<Read>>(&question->what);
    if (read == nullptr) return nullptr;
    if (answer.served != Served::kYes) {
      if (answer.served == Served::kLost) note_lost(answer.shard);
      if (answer.served == Served::kTooLarge) {
        fail(too_large(answer.shard, limits_.largest_message));
      }
      questions_.not_served(answer.request, from);
      return nullptr;
    }
    if (part != nullptr) *part = question->part;
    auto taken = std::move(*read);
    questions_.answered(answer.request);
    return taken;
  }

  void answered(const ReadAnswer& answer, const ServerKey& from) {
    size_t number = 0;
    auto read = take_question<RowRead>(answer, from, &number);
    if (read == nullptr) return;
    auto& part = read->parts_[number];
    part.clock = answer.clock;
    if (!put_rows(answer.weights, part.places, read->width_, read->weights_.data())) {
      return fail(Error(ErrorKind::kInternal,
                        "a parameter server has sent {} bytes of weights for {} keys",
                        answer.weights->size(), part.keys.size()));
    }
    done_.push_back(std::move(read));
  }

  void answered(WholeAnswer answer, const ServerKey& from) {
    const auto read = take_question<WholeRead>(answer, from);
    if (read == nullptr) return;
    const ShardNumber shard = answer.shard;
    read->shards[shard] = std::move(answer);
    const std::lock_guard lock(mutex_);
    --read->unanswered;
    news_ = true;
  }

  void answered(OrderAnswer answer, const ServerKey& from) {
    const auto read = take_question<OrderRead>(answer, from);
    if (read == nullptr) return;
    read->view = std::move(answer.view);
    const std::lock_guard lock(mutex_);
    read->answered = true;
    news_ = true;
  }

  void fail(Error error) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(error);
    news_ = true;
  }

  // Tells users' threads what has come.
  void publish() {
    const std::lock_guard lock(mutex_);
    bool news = std::exchange(news_, false) || answered_ > 0 || !done_.empty();
    unanswered_ -= std::exchange(answered_, 0);
    unanswered_bytes_ -= std::exchange(answered_bytes_, 0);
    for (const auto& read : std::exchange(done_, {})) --read->unanswered_;
    if (!ready_ && map_.epoch > 0) ready_ = news = true;
    told_bytes_ = sent_bytes_;
    if (news) changed_.notify_all();
  }

  const std::string registry_address_;
  const Clock& clock_;
  const ClientLimits limits_;
  const uint64_t self_;

  std::condition_variable changed_;
  mutable std::mutex mutex_;  // these
  bool stopped_ = false;
  bool ready_ = false;
  bool news_ = false;
  std::optional<Error> failure_;
  std::vector<Command> commands_;
  size_t unanswered_ = 0;  // pushes
  size_t unanswered_bytes_ = 0;
  uint64_t told_bytes_ = 0;
  std::optional<TablesSetup> setup_;  // set once, before ready_

  // Of the thread.
  ServerMap map_;
  std::optional<PushQueue> queue_;
  std::vector<std::deque<size_t>> sizes_;  // of pushes that are not answered, by shard
  ConnectionId registry_ = 0;
  bool registry_open_ = false;
  std::optional<Moment> alone_since_;
  Moment registry_retry_at_;
  Moment looked_;  // for connections, the last time
  Moment ask_status_at_;
  Moment retry_at_;
  std::optional<Moment> lost_since_;  // some shard, in the present epoch
  std::map<ServerKey, ServerConnection> servers_;
  std::map<ConnectionId, ServerKey> connections_;
  Questions<Question> questions_{*this};
  // Since the last publish().
  size_t answered_ = 0;
  size_t answered_bytes_ = 0;
  std::vector<std::shared_ptr<RowRead>> done_;
  uint64_t sent_bytes_ = 0;

  Network network_{*this};
  Thread thread_;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::connect(const std::string& registry, const Clock& clock,
                                                Duration timeout, ClientLimits limits) {
  auto impl = std::make_unique<Impl>(registry, clock, limits);
  MUSTER_RETURN_IF_ERROR(impl->start(timeout));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

const TablesSetup& Client::setup() const { return impl_->setup(); }
uint64_t Client::sent_bytes() const { return impl_->sent_bytes(); }
Status Client::wait() { return impl_->wait(); }

namespace {

Error no_table(uint32_t table) {
  return Error(ErrorKind::kInternal, "there is no table {} on the parameter servers", table);
}

}  // namespace

std::vector<int64_t> RowRead::clocks() const {
  std::vector<int64_t> clocks;
  clocks.reserve(parts_.size());
  for (const auto& part : parts_) clocks.push_back(part.clock);
  return clocks;
}

Result<std::shared_ptr<RowRead>> Client::begin_read(uint32_t table, std::span<const uint64_t> keys,
                                                    int64_t clock, bool exactly) {
  if (table >= setup().tables.size()) return no_table(table);
  auto read = std::make_shared<RowRead>();
  read->table_ = table;
  read->clock_ = clock;
  read->exactly_ = exactly;
  read->width_ = setup().tables[table].width;
  read->weights_.resize(keys.size() * read->width_);
  ByShard(keys, setup().shards).for_each([&](ShardNumber shard, std::span<const uint32_t> places) {
    auto& part = read->parts_.emplace_back();
    part.shard = shard;
    part.places.assign(places.begin(), places.end());
    for (const uint32_t place : places) part.keys.push_back(keys[place]);
  });
  read->unanswered_ = read->parts_.size();
  if (!read->parts_.empty()) MUSTER_RETURN_IF_ERROR(impl_->post(read));
  return read;
}

Result<bool> Client::finish_within(RowRead& read, Duration timeout) {
  return impl_->wait_for(timeout, [&] { return read.unanswered_ == 0; });
}

Status Client::finish(RowRead& read) {
  return impl_->wait_until([&] { return read.unanswered_ == 0; });
}

Result<std::vector<float>> Client::read(uint32_t table, std::span<const uint64_t> keys,
                                        int64_t clock) {
  MUSTER_TRY(const auto read, begin_read(table, keys, clock));
  MUSTER_RETURN_IF_ERROR(finish(*read));
  return std::move(read->weights_);
}

Status Client::push(PushHeader header, std::span<const uint64_t> keys,
                    std::span<const float> gradients) {
  if (header.table >= setup().tables.size()) return no_table(header.table);
  const size_t floats = floats_of(header.kind, setup().tables[header.table].width);
  if (gradients.size() != keys.size() * floats) {
    return Error(ErrorKind::kInternal, "{} floats are no gradient of {} rows of {}",
                 gradients.size(), keys.size(), floats);
  }
  return impl_->post(pushes_by_shard(header, keys, gradients, floats, setup().shards));
}

Status Client::push_to_all(std::string push) {
  PushesByShard pushes;
  const auto bytes = Bytes(std::move(push));
  for (ShardNumber shard = 0; shard < setup().shards; ++shard) pushes.emplace_back(shard, bytes);
  return impl_->post(std::move(pushes));
}

Status Client::commit(uint64_t era, int64_t step) {
  return push_to_all(push_bytes({.kind = PushKind::kCommit, .era = era, .step = step}, {}, {}));
}

Status Client::apply(uint64_t era, const PlacedPushes& pushes) {
  return push_to_all(apply_bytes(era, pushes));
}

Status Client::push_order(uint64_t era, std::string_view operation) {
  return impl_->post(PushesByShard{{kOrderShard, Bytes(order_push(era, operation))}});
}

Result<OrderView> Client::order(uint64_t worker, int64_t from, bool results) {
  const auto read = std::make_shared<OrderRead>(OrderRead{worker, from, results, false, {}});
  MUSTER_RETURN_IF_ERROR(impl_->post(read));
  MUSTER_RETURN_IF_ERROR(impl_->wait_until([&] { return read->answered; }));
  return std::move(read->view);
}

Result<std::shared_ptr<Client::WholeRead>> Client::read_all(uint64_t era, int64_t clock,
                                                            bool contents,
                                                            const Progress& progress) {
  auto read = std::make_shared<WholeRead>();
  read->era = era;
  read->clock = clock;
  read->contents = contents;
  read->shards.resize(setup().shards);
  read->unanswered = setup().shards;
  MUSTER_RETURN_IF_ERROR(impl_->post(read));
  const Duration silence = impl_->limits().silence;
  for (size_t left = setup().shards; left > 0;) {
    const size_t before = left;
    const auto came = [&] {
      left = read->unanswered;
      return left < before;
    };
    MUSTER_TRY(const bool any, impl_->wait_for(silence, came));
    if (!any) {
      return Error(ErrorKind::kMachine,
                   "parameter servers gave {} of {} shards after step {}, and no other one in {} "
                   "s: `muster status` and the logs of servers say what holds them up",
                   setup().shards - left, setup().shards, clock, seconds(silence));
    }
    if (progress) progress();
  }
  return read;
}

Status Client::check_cut(const WholeRead& read, uint64_t era, int64_t clock) {
  for (const auto& shard : read.shards) {
    if (shard.era != era) {
      return Error(ErrorKind::kInternal, "rows of era {} were asked for, and shard {} is in era {}",
                   era, shard.shard, shard.era);
    }
    if (shard.clock != clock) {
      return Error(ErrorKind::kInternal,
                   "rows after step {} were asked for, and shard {} has gone on to {}", clock,
                   shard.shard, shard.clock);
    }
  }
  return {};
}

namespace {
Hash128 hash_of(std::span<const WholeAnswer> shards) {
  Hasher hasher;
  for (const auto& shard : shards) hasher.add(&shard.hash, sizeof(shard.hash));
  return hasher.finish();
}
}  // namespace

Result<Hash128> Client::hash() {
  MUSTER_TRY(const auto read, read_all(0, 0, false, {}));
  return hash_of(read->shards);
}

Result<Hash128> Client::hash(uint64_t era, int64_t clock, const Progress& progress) {
  MUSTER_TRY(const auto read, read_all(era, clock, false, progress));
  MUSTER_RETURN_IF_ERROR(check_cut(*read, era, clock));
  return hash_of(read->shards);
}

Result<std::vector<std::string>> Client::save(uint64_t era, int64_t clock,
                                              const Progress& progress) {
  MUSTER_TRY(const auto read, read_all(era, clock, true, progress));
  MUSTER_RETURN_IF_ERROR(check_cut(*read, era, clock));
  std::vector<std::string> shards;
  // One by one: all rows would be there twice.
  for (auto& shard : read->shards) shards.emplace_back(*std::exchange(shard.contents, {}));
  return shards;
}

Status Client::load(uint64_t era, std::span<const std::string> shards, const Progress& progress) {
  MUSTER_RETURN_IF_ERROR(check_shards(setup(), shards.size()));
  // One by one: not all of them have to be on their way at the same time.
  for (ShardNumber i = 0; i < shards.size(); ++i) {
    MUSTER_RETURN_IF_ERROR(impl_->post(PushesByShard{{i, Bytes(load_bytes(era, shards[i]))}}));
    if (progress) progress();
  }
  return wait();
}

}  // namespace muster::ps

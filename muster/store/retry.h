// A Store that waits until another one works: tries again, and asks a second time when an answer is
// late.
//
// - Errors of kind kIo are tried again (backoff.h), all but lists without a limit: when a server
//   is down, training waits for it and does not fail. problem() says why. stop() ends all waiting.
// - Of a list, only the request that failed (a page, a folder) is made again. The list fails if one
//   of its requests has no answer for RetryOptions::list_timeout: a job begins with lists, and
//   there a server that cannot be reached is more often a wrong address.
// - Other errors are returned as they are.
// - A read that is older than twice the p95 of its size is sent a second time (hedged), and the
//   first answer counts. At most RetryOptions::hedges of these run at once, so an overloaded server
//   gets little more load. Reads of local files are not hedged.
// - A conditional write that fails may have been written all the same. If the next attempt finds
//   the condition broken, the object is read back: if it has our bytes, the write has succeeded.
//
// Threads: calls run on their caller's. RetryOptions::hedges threads ("store-hedge") send the
// second requests.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "muster/base/clock.h"
#include "muster/base/thread.h"
#include "muster/store/backoff.h"
#include "muster/store/store.h"

namespace muster::store {

struct RetryOptions {
  Backoff::Options backoff;
  HedgeOptions hedge;
  int hedges = 2;  // second requests at once; 0: none
  // Of each request of a list, so it counts from the last one that succeeded.
  Duration list_timeout = std::chrono::seconds(60);
  // Of the jitter. Nothing: a random one, so that workers differ.
  std::optional<uint64_t> seed;
};

class RetryStore final : public Store {
 public:
  // `clock` outlives the store.
  RetryStore(std::unique_ptr<Store> inner, const Clock& clock, RetryOptions options = {});
  // Like stop(). No call may be under way.
  ~RetryStore() override;

  Result<std::vector<Object>> list(std::string_view address) override;
  Result<std::vector<Object>> list_stoppable(std::string_view address,
                                             const std::stop_token& stop) override;
  Status read(const Object& object, uint64_t offset, std::span<std::byte> into) override;
  Status read_stoppable(const Object& object, uint64_t offset, std::span<std::byte> into,
                        const std::stop_token& stop) override;
  Result<std::optional<std::string>> write(std::string_view address,
                                           std::span<const std::byte> bytes,
                                           const WriteCondition& condition) override;
  Result<std::optional<std::string>> write_stoppable(std::string_view address,
                                                     std::span<const std::byte> bytes,
                                                     const WriteCondition& condition,
                                                     const std::stop_token& stop) override;
  Status remove(std::string_view address) override;
  Status remove_stoppable(std::string_view address, const std::stop_token& stop) override;

  // All calls, those under way too, return an error of kind kInterrupted from now on.
  void stop() { stop_.request_stop(); }

  StoreCounters counters() const override;
  // The last failure, if no call has succeeded since; else empty.
  std::string problem() const override;

 private:
  struct HedgedRead;

  // Calls `attempt` until it succeeds, fails with another kind than kIo, or `stop` is requested.
  // `limit`: of the whole, if there is one.
  Status persist(const std::function<Status()>& attempt, const std::stop_token& stop,
                 std::optional<Duration> limit);
  // Ends earlier if the server has come back since recoveries_ had this value. Returns false if
  // stopped before.
  bool wait_until(Moment moment, uint64_t recoveries, const std::stop_token& stop);
  Status read_once(const Object& object, uint64_t offset, std::span<std::byte> into,
                   const std::stop_token& stop);
  // Ends the first request if the second one was quicker, or waits for it; returns the outcome.
  Status settle(HedgedRead& read, Status first, std::span<std::byte> into,
                const std::stop_token& stop);
  void send_second_requests();
  std::shared_ptr<HedgedRead> next_due(std::unique_lock<std::mutex>& lock);
  // The version of the object if it has these bytes, else nothing, also if there is no object.
  Result<std::optional<std::string>> version_if_holds(std::string_view address,
                                                      std::span<const std::byte> bytes,
                                                      const std::stop_token& stop);

  const std::unique_ptr<Store> inner_;
  const Clock& clock_;
  const RetryOptions options_;
  std::stop_source stop_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable_any changed_;
  Backoff backoff_;
  uint64_t recoveries_ = 0;  // how often all requests had to wait, and then one succeeded
  ReadTimes times_;
  StoreCounters counters_;
  std::string last_error_;
  std::list<std::shared_ptr<HedgedRead>> reads_;  // may need a second request
  uint64_t reads_begun_ = 0;                      // grows with each read added there
  std::vector<Thread> hedgers_;
};

}  // namespace muster::store

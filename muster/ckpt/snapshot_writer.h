// Writes snapshots behind the training.
//
// A snapshot must be of one step, and writing takes longer than a step. So the step loop copies its
// state into a buffer at a step boundary (memory speed) and goes on; a thread writes the buffer.
// There is one buffer: if the disk is slower than the snapshots come, begin() waits, rather than
// memory fill up or snapshots be skipped.
//
//   MUSTER_TRY(SnapshotBuffer* buffer, writer.begin());
//   for (tensor : model) buffer->add_model(name, dtype, shape, bytes);
//   for (state : optimizer) buffer->add_state(name, dtype, shape, bytes);
//   writer.submit({.step = step, .best = best, .meta = ...});
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "muster/base/log.h"
#include "muster/base/result.h"
#include "muster/base/thread.h"
#include "muster/ckpt/snapshot.h"

namespace muster::ckpt {

// A copy of a state. Its memory is kept from one snapshot to the next, so that after the first one
// copying costs no allocation of tensors and no page faults.
class SnapshotBuffer {
 public:
  // `data` is copied; the name must be new, its size that of dtype and shape (else write() fails).
  void add_model(std::string name, DType dtype, std::vector<int64_t> shape,
                 std::span<const std::byte> data);
  void add_state(std::string name, DType dtype, std::vector<int64_t> shape,
                 std::span<const std::byte> data);
  // Room for this many bytes of tensors at once; without it the first snapshot grows step by step.
  void reserve(size_t bytes);
  void clear();

  // Valid until the next add, reserve or clear.
  std::vector<TensorView> model() const { return views(model_); }
  std::vector<TensorView> state() const { return views(state_); }
  size_t bytes() const { return size_; }

 private:
  struct Entry {
    TensorView tensor;  // without data
    size_t offset = 0;
    size_t size = 0;
  };
  Entry copy_in(std::string name, DType dtype, std::vector<int64_t> shape,
                std::span<const std::byte> data);
  std::vector<TensorView> views(const std::vector<Entry>& entries) const;

  std::vector<Entry> model_;
  std::vector<Entry> state_;
  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0;
  size_t size_ = 0;
};

struct SnapshotHeader {
  int64_t step = 0;
  uint64_t roster = 0;
  bool best = false;
  nlohmann::json meta = nlohmann::json::object();
};

// For one caller: begin, submit and wait from one thread. The store and the log must outlive it.
class SnapshotWriter {
 public:
  // `written`: called whenever a snapshot is complete, before wait() returns, from the thread that
  // writes.
  SnapshotWriter(SnapshotStore& store, Log& log, std::function<void()> written = {});
  // Waits for the write under way; its error, if nobody asked, is in the log.
  ~SnapshotWriter();
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;

  // Waits until the previous write is done and gives the empty buffer, the caller's until submit().
  // If the previous write failed, that error instead, once: the caller decides whether to stop or
  // to call again.
  Result<SnapshotBuffer*> begin();
  // Returns at once. After a begin() that was ok, once.
  void submit(SnapshotHeader header);
  // Waits until nothing is under way. The error of the last write, if begin() has not told it;
  // once.
  Status wait();

 private:
  void run();

  SnapshotStore& store_;
  Log& log_;
  const std::function<void()> written_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<SnapshotHeader> pending_;  // guarded by mutex_; while it is there, buffer_ is the
                                           // thread's, otherwise the caller's
  std::optional<Error> error_;             // guarded by mutex_
  bool stop_ = false;                      // guarded by mutex_
  SnapshotBuffer buffer_;
  bool begun_ = false;  // the caller's only
  Thread thread_;       // last: it uses all of the above
};

}  // namespace muster::ckpt

#include "muster/copy/copy_sender.h"

#include <utility>

#include "muster/base/text.h"

namespace muster::copy {
namespace {

constexpr Duration kSecondAttempt = std::chrono::seconds(1);
constexpr Duration kLaterAttempts = std::chrono::seconds(10);
constexpr auto kLook = std::chrono::milliseconds(50);

// A store speaks of data, or of the machine's credentials; here it is where results go.
Result<CopyWriter::Outcome> as_output(Result<CopyWriter::Outcome> outcome) {
  if (outcome.ok()) return outcome;
  const auto kind = outcome.error().kind();
  if (kind != ErrorKind::kData && kind != ErrorKind::kMachine) return outcome;
  return Error(ErrorKind::kIo, "{}", outcome.error().message());
}

}  // namespace

CopySender::CopySender(std::unique_ptr<store::RetryStore> store, FileSystem& files,
                       CopyOptions options, Log& log)
    : store_(std::move(store)),
      log_(log),
      writer_(*store_, files, std::move(options)),
      thread_("muster-copy", [this] { run(); }) {}

CopySender::~CopySender() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  store_->stop();
  thread_.join();
}

void CopySender::set_take_over(CopyWriter::TakeOver take_over) {
  const std::lock_guard lock(take_over_mutex_);
  take_over_ = std::move(take_over);
}

void CopySender::begin(uint64_t roster, int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    active_ = true;
    claimed_ = false;
    pending_ = true;
    ++begun_;
    roster_ = roster;
    step_ = step;
    next_attempt_ = clock_.now();
    error_.reset();
  }
  changed_.notify_all();
}

void CopySender::end() {
  {
    const std::lock_guard lock(mutex_);
    active_ = false;
  }
  changed_.notify_all();
}

void CopySender::changed() {
  {
    const std::lock_guard lock(mutex_);
    pending_ = true;
    next_attempt_ = clock_.now();
  }
  changed_.notify_all();
}

Status CopySender::wait_until_claimed(const std::function<bool()>& keep_waiting) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [&] { return claimed_ || !active_ || error_; })) {
    lock.unlock();
    if (keep_waiting && !keep_waiting()) {
      return Error(ErrorKind::kInterrupted, "ended while the copy in '{}' was claimed", to());
    }
    lock.lock();
  }
  if (error_) return *error_;
  return {};
}

Result<bool> CopySender::wait_until_sent(
    std::optional<Duration> limit, const std::function<void(const std::string& problem)>& waiting) {
  const Moment began = clock_.now();
  std::unique_lock lock(mutex_);
  if (is_idle()) return true;
  // An attempt that failed before does not count.
  error_.reset();
  next_attempt_ = began;
  changed_.notify_all();
  while (!changed_.wait_for(lock, kLook, [&] { return is_idle() || error_; })) {
    if (limit && clock_.now() - began >= *limit) return false;
    lock.unlock();
    waiting(store_->problem());
    lock.lock();
  }
  if (error_) return Error(*error_).context("the newest checkpoint is not in '{}'", to());
  return true;
}

std::optional<std::string> CopySender::take_notice() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notice_, std::nullopt);
}

Result<CopyWriter::Outcome> CopySender::work(const Task& task) {
  if (task.claim) {
    CopyWriter::TakeOver take_over;
    {
      const std::lock_guard lock(take_over_mutex_);
      if (take_over_) {
        take_over = [this](const std::string& metrics) -> Status {
          const std::lock_guard called(take_over_mutex_);
          if (take_over_) return take_over_(metrics);
          return Error(ErrorKind::kInterrupted, "this process does not record any more");
        };
      }
    }
    MUSTER_TRY(const auto outcome, writer_.claim(task.roster, task.step, take_over));
    if (outcome == CopyWriter::Outcome::kTakenOver) return outcome;
    const std::lock_guard lock(mutex_);
    claimed_ |= task.begun == begun_;  // else begin() was called meanwhile
    changed_.notify_all();
  }
  return writer_.send();
}

void CopySender::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool due = active_ && pending_;
    if (!due) {
      changed_.wait(lock);
      continue;
    }
    if (const auto left = next_attempt_ - clock_.now(); left > Duration{}) {
      changed_.wait_for(lock, left);
      continue;
    }
    pending_ = false;
    busy_ = true;
    const Task task{.begun = begun_, .claim = !claimed_, .roster = roster_, .step = step_};
    const Moment began = clock_.now();
    lock.unlock();
    const auto outcome = as_output(work(task));
    lock.lock();
    busy_ = false;
    if (task.begun == begun_ && !stop_) {
      if (!outcome.ok()) {
        // The first time it may be that a checkpoint was superseded while it was being read.
        const bool again = std::exchange(failed_, true);
        const std::string& why = outcome.error().message();
        if (again && told_ != why) {
          told_ = why;
          notice_ = fmt::format("the copy in {} is behind: {}", to(), why);
          log_.warning("{}", *notice_);
        }
        error_ = outcome.error();
        pending_ = true;
        next_attempt_ = clock_.now() + (again ? kLaterAttempts : kSecondAttempt);
      } else if (*outcome == CopyWriter::Outcome::kTakenOver) {
        active_ = false;
        notice_ = fmt::format(
            "a process on {} has taken over the copy in {}: this one does not send to it any more",
            writer_.taker(), to());
        log_.warning("{}", *notice_);
      } else {
        error_.reset();
        failed_ = false;
        told_.clear();
        const auto unremoved = writer_.take_unremoved();
        if (!unremoved.empty() && !std::exchange(told_unremoved_, true)) {
          notice_ = fmt::format("what is superseded stays in {}: {}", to(), unremoved);
          log_.warning("{}", *notice_);
        }
        log_.info("sent to {} in {}", to(), human_seconds(seconds(clock_.now() - began)));
      }
    }
    changed_.notify_all();
  }
}

}  // namespace muster::copy

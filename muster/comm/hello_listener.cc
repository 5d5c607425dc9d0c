#include "muster/comm/hello_listener.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "muster/comm/watch_frames.h"

namespace muster::comm {

HelloListener::HelloListener(Listener listener, uint64_t token, int rank, int size, Limits limits)
    : listener_(std::move(listener)), token_(token), rank_(rank), size_(size), limits_(limits) {}

void HelloListener::add_to(std::vector<pollfd>& set, Moment now) const {
  if (!listener_.fd) return;
  const bool paused = paused_until_ && now < *paused_until_;
  set.push_back({paused ? -1 : listener_.fd.get(), POLLIN, 0});
  for (const Stranger& s : strangers_) set.push_back({s.fd.get(), POLLIN, 0});
}

std::optional<Moment> HelloListener::due() const {
  std::optional<Moment> first = paused_until_;
  if (!strangers_.empty() && (!first || strangers_.front().expires < *first)) {
    first = strangers_.front().expires;
  }
  return first;
}

std::vector<HelloListener::Guest> HelloListener::handle(std::span<const pollfd> polled,
                                                        Moment now) {
  std::vector<Guest> guests;
  if (!listener_.fd) return guests;
  if (paused_until_ && now >= *paused_until_) paused_until_.reset();
  const auto valid = [&](const HelloHeader& hello) {
    return hello.token == token_ && hello.rank >= 0 && hello.rank < size_ && hello.rank != rank_;
  };
  std::vector<Stranger> remaining;
  for (size_t i = 0; i < strangers_.size(); ++i) {
    Stranger& s = strangers_[i];
    HelloHeader hello;
    HelloState state = HelloState::kIncomplete;
    const bool ready = i + 1 < polled.size() && polled[i + 1].revents != 0;
    // If this process was stopped meanwhile, a hello may have arrived in time and not been read.
    if (ready || now >= s.expires) {
      state = read_hello(s.fd, s.heard, hello, valid);
    }
    if (state == HelloState::kComplete) {
      guests.push_back({hello.rank, hello.probe != 0, std::move(s.fd),
                        s.heard.substr(sizeof(hello), hello.length)});
    } else if (state == HelloState::kIncomplete && now < s.expires) {
      remaining.push_back(std::move(s));
    }
  }
  strangers_ = std::move(remaining);
  if (!polled.empty() && polled[0].revents != 0) accept_all(now);
  return guests;
}

void HelloListener::accept_all(Moment now) {
  // At most a listener's worth at a time: whoever connects faster than this loop must not hold it.
  for (size_t i = 0; i < limits_.strangers; ++i) {
    Fd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        paused_until_ = now + limits_.pause;
        trouble_ = fmt::format("this process could not accept connections: {} (see `ulimit -n`)",
                               std::generic_category().message(errno));
      }
      return;
    }
    trouble_.clear();
    if (strangers_.size() >= limits_.strangers) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(fd), {}, now + limits_.hello_time});
  }
}

void HelloListener::close() {
  listener_.fd.reset();
  strangers_.clear();
  paused_until_.reset();
}

}  // namespace muster::comm

#include "muster/comm/gloo_wire.h"

#include <csignal>
#include <ctime>
#include <exception>
#include <limits>
#include <stdexcept>
#include <utility>

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

// Whoever forms the group keeps the time; Gloo's own limit must not get in the way.
constexpr auto kNoLimit = std::chrono::hours(24);

std::chrono::milliseconds time_left(Moment deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace

GlooWire::GlooWire(std::shared_ptr<GlooDevice> device, int rank, int size)
    : device_(std::move(device)), size_(size), context_(device_->create_context(rank, size)) {
  context_->setTimeout(kNoLimit);
}

void GlooWire::listen(const std::vector<int>& peers) {
  // All of them at once: close() walks over them, from another thread.
  const std::lock_guard lock(mutex_);
  if (closed_) throw std::runtime_error("closed");
  for (const int peer : peers) context_->createPair(peer);
}

GlooWire::~GlooWire() {
  close();
  MUSTER_CHECK(endpoints_.empty(), "an endpoint outlives its wire");
}

std::string GlooWire::address_for(int peer) const {
  const std::vector<char> bytes = context_->getPair(peer)->address().bytes();
  return {bytes.begin(), bytes.end()};
}

void GlooWire::connect(int peer, const std::string& address) {
  const GlooDevice::Hurry hurry(*device_, size_);
  context_->getPair(peer)->connect({address.begin(), address.end()});
}

void GlooWire::close() {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  const GlooDevice::Hurry hurry(*device_, size_);
  // The only way to have Gloo fail all that waits in a context: be late with a receive.
  try {
    context_->createUnboundBuffer(nullptr, 0)->waitRecv(std::chrono::milliseconds(0));
    // NOLINTNEXTLINE(bugprone-empty-catch): the exception is what was wanted
  } catch (const std::exception&) {
  }
  // What was in the middle of a message must be woken one by one.
  for (Endpoint* endpoint : endpoints_) {
    endpoint->buffer_->abortWaitSend();
    endpoint->buffer_->abortWaitRecv();
  }
}

GlooWire::Endpoint::Endpoint(GlooWire& wire)
    : wire_(wire),
      buffer_(wire.context_->createUnboundBuffer(nullptr, std::numeric_limits<size_t>::max())) {
  const std::lock_guard lock(wire_.mutex_);
  place_ = wire_.endpoints_.insert(wire_.endpoints_.end(), this);
  if (wire_.closed_) {
    buffer_->abortWaitSend();
    buffer_->abortWaitRecv();
  }
}

GlooWire::Endpoint::~Endpoint() {
  const std::lock_guard lock(wire_.mutex_);
  wire_.endpoints_.erase(place_);
}

bool GlooWire::Endpoint::send(int peer, uint64_t id, const void* data, size_t bytes) {
  try {
    buffer_->send(peer, id, reinterpret_cast<size_t>(data), bytes);
    return true;
  } catch (const std::exception& e) {
    error_ = e.what();
    return false;
  }
}

bool GlooWire::Endpoint::recv(int peer, uint64_t id, void* data, size_t bytes) {
  try {
    buffer_->recv(peer, id, reinterpret_cast<size_t>(data), bytes);
    return true;
  } catch (const std::exception& e) {
    error_ = e.what();
    return false;
  }
}

template <typename Wait>
GlooWire::Endpoint::Outcome GlooWire::Endpoint::wait(Moment deadline, Wait wait) {
  try {
    return wait(time_left(deadline)) ? Outcome::kDone : Outcome::kClosed;
  } catch (const std::exception& e) {
    error_ = e.what();
    return std::chrono::steady_clock::now() >= deadline ? Outcome::kLate : Outcome::kBroken;
  }
}

GlooWire::Endpoint::Outcome GlooWire::Endpoint::wait_send(Moment deadline) {
  return wait(deadline, [&](auto left) { return buffer_->waitSend(left); });
}

GlooWire::Endpoint::Outcome GlooWire::Endpoint::wait_recv(Moment deadline) {
  return wait(deadline, [&](auto left) { return buffer_->waitRecv(left); });
}

SigpipeGuard::SigpipeGuard() {
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

SigpipeGuard::~SigpipeGuard() {
  if (was_blocked_) return;
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  while (sigtimedwait(&pipe, nullptr, &now) == SIGPIPE) {
  }
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace muster::comm

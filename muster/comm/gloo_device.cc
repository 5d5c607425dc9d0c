#include "muster/comm/gloo_device.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <mutex>
#include <set>
#include <utility>

#include <gloo/transport/tcp/device.h>

#include "muster/base/check.h"
#include "muster/base/symbol_origin.h"

namespace muster::comm {
namespace {

constexpr long kTickNanoseconds = 100'000;
constexpr long kLongestTickNanoseconds = 5'000'000;

// A timer among the descriptors of Gloo's loop; that it went off is all it does. Which of the two
// functions overrides depends on Gloo's version.
class Ticker final : public gloo::transport::tcp::Handler {
 public:
  explicit Ticker(int fd) : fd_(fd) {}
  // NOLINTBEGIN(modernize-use-override): no version has both to override
  void handleEvents(int /*events*/) { drain(); }
  void handleEvents(gloo::transport::tcp::Loop& /*loop*/, int /*events*/) { drain(); }
  // NOLINTEND(modernize-use-override)

 private:
  void drain() {
    uint64_t expirations = 0;
    (void)!::read(fd_, &expirations, sizeof(expirations));
  }
  const int fd_;
};

// Threads that a library makes should not take the process's signals; and Gloo's must not die of
// SIGPIPE when a peer has closed.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

struct GlooDevice::Impl {
  Fd timer{::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
  Ticker ticker{timer.get()};
  // After the two: its thread, which uses them, is joined when this goes. (Contexts hold it as
  // well, but they are gone by then: their wires hold the GlooDevice.)
  std::shared_ptr<gloo::transport::tcp::Device> device;
  std::mutex mutex;
  std::multiset<long> ticks;  // of those that hurry; guarded by mutex

  // 0: not at all.
  void set_ticking(long nanoseconds) {
    const timespec period{.tv_sec = 0, .tv_nsec = nanoseconds};
    const itimerspec spec{.it_interval = period, .it_value = period};
    ::timerfd_settime(timer.get(), 0, &spec, nullptr);
  }
};

Result<std::shared_ptr<GlooDevice>> GlooDevice::open(const std::string& host) {
  MUSTER_RETURN_IF_ERROR(check_symbol_origin("gloo::transport::tcp::CreateDevice",
                                             function_address(&gloo::transport::tcp::CreateDevice),
                                             "libgloo"));
  MUSTER_TRY(const SocketAddress address, resolve(host));
  // Gloo's own way of saying that an address is wrong is to crash.
  MUSTER_RETURN_IF_ERROR([&]() -> Status {
    MUSTER_TRY(const Listener probe, listen_at(address, 1));
    return {};
  }());
  auto impl = std::make_unique<Impl>();
  if (!impl->timer) return Error(ErrorKind::kMachine, "cannot make a timer (see `ulimit -n`)");
  try {
    const AllSignalsBlocked blocked;
    gloo::transport::tcp::attr attributes(address.ip().c_str());
    attributes.ai_family = address.storage.ss_family;
    impl->device = std::dynamic_pointer_cast<gloo::transport::tcp::Device>(
        gloo::transport::tcp::CreateDevice(attributes));
    MUSTER_CHECK(impl->device != nullptr, "Gloo made another kind of device");
    impl->device->registerDescriptor(impl->timer.get(), EPOLLIN, &impl->ticker);
  } catch (const std::exception& e) {
    return Error(ErrorKind::kMachine, "Gloo cannot use the address {}: {}", address.ip(), e.what());
  }
  return std::shared_ptr<GlooDevice>(new GlooDevice(address, std::move(impl)));
}

GlooDevice::GlooDevice(SocketAddress address, std::unique_ptr<Impl> impl)
    : address_(address), impl_(std::move(impl)) {}

GlooDevice::~GlooDevice() {
  impl_->set_ticking(kTickNanoseconds);
  impl_->device->unregisterDescriptor(impl_->timer.get(), &impl_->ticker);
}

std::shared_ptr<gloo::transport::Context> GlooDevice::create_context(int rank, int size) {
  return impl_->device->createContext(rank, size);
}

GlooDevice::Hurry::Hurry(GlooDevice& device, int members) : device_(device) {
  const long tick =
      std::min(kTickNanoseconds * std::max(members / kFewMembers, 1), kLongestTickNanoseconds);
  const std::lock_guard lock(device_.impl_->mutex);
  place_ = device_.impl_->ticks.insert(tick);
  if (place_ == device_.impl_->ticks.begin()) device_.impl_->set_ticking(tick);
}

GlooDevice::Hurry::~Hurry() {
  const std::lock_guard lock(device_.impl_->mutex);
  auto& ticks = device_.impl_->ticks;
  ticks.erase(place_);
  device_.impl_->set_ticking(ticks.empty() ? 0 : *ticks.begin());
}

}  // namespace muster::comm

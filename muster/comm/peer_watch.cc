#include "muster/comm/peer_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

// As they travel, in the byte order of the machine: a group is of one kind of machine anyway.
struct HelloHeader {
  static constexpr uint32_t kMagic = 0x6f6c6c48;
  uint32_t magic = kMagic;
  int32_t rank = 0;
  uint64_t token = 0;  // of the one who is called
  uint32_t length = 0;
  uint32_t unused = 0;
};
// All that follows the hello.
enum class FrameType : uint8_t { kLeaving = 1, kFailed = 2, kQuestion = 3, kAnswer = 4 };
struct FrameHeader {
  static constexpr uint16_t kMagic = 0x4d46;
  uint16_t magic = kMagic;
  FrameType type = FrameType::kLeaving;
  uint8_t kind = 0;     // kFailed: the FailureKind
  int32_t culprit = 0;  // kFailed
  uint32_t number = 0;  // of a question, and in its answer
  uint32_t length = 0;  // of what follows: the message, question or answer
};
constexpr size_t kLongestGreeting = 64 << 10;
constexpr size_t kLongestText = 4096;

template <typename Header>
std::string encode(const Header& header, std::string_view rest) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes.append(rest);
  return bytes;
}

template <typename Header>
bool decode(const std::string& bytes, Header& header) {
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return true;
}

uint64_t random_token() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// Appends what there is to read. False: the other side has closed, or the connection broke.
bool read_some(const Fd& fd, std::string& into) {
  char buffer[4096];
  while (true) {
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): MSG_DONTWAIT, it does not block
    const ssize_t n = ::recv(fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n > 0) {
      into.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (n == 0) return false;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK;
  }
}

// Few bytes into an empty send buffer: they go at once or not at all.
void write_all(const Fd& fd, const std::string& bytes) {
  (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct Where {
  SocketAddress address;
  uint64_t token = 0;
};
Result<Where> parse_where(const std::string& text) {
  // ip port token
  const size_t a = text.find(' ');
  const size_t b = text.find(' ', a == std::string::npos ? a : a + 1);
  const auto bad = [&] { return Error(ErrorKind::kIo, "'{}' is not a member's address", text); };
  if (a == std::string::npos || b == std::string::npos) return bad();
  int port = 0;
  Where where;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data() + a + 1, text.data() + b, port).ec != std::errc{} ||
      std::from_chars(text.data() + b + 1, end, where.token, 16).ec != std::errc{}) {
    return bad();
  }
  MUSTER_TRY(where.address, parse_address(text.substr(0, a), port));
  return where;
}

}  // namespace

Result<std::unique_ptr<PeerWatch>> PeerWatch::listen(SocketAddress at, int rank, int size) {
  at.set_port(0);
  MUSTER_TRY(Listener listener, listen_at(at, std::max(size, 16)));
  return std::unique_ptr<PeerWatch>(new PeerWatch(std::move(listener), rank, size));
}

PeerWatch::PeerWatch(Listener listener, int rank, int size)
    : rank_(rank),
      size_(size),
      token_(random_token()),
      listener_(std::move(listener)),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      peers_(static_cast<size_t>(size)) {
  MUSTER_CHECK(bool(wake_), "eventfd failed: too many open files (see `ulimit -n`)");
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

std::string PeerWatch::address() const {
  return fmt::format("{} {} {:x}", listener_.address.ip(), listener_.address.port(), token_);
}

Status PeerWatch::start(const std::vector<std::string>& addresses,
                        std::vector<std::string> greetings, Handlers handlers) {
  handlers_ = std::move(handlers);
  std::vector<std::pair<int, int>> unreachable;  // and why (errno)
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size_; ++r) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      if (r == rank_) {
        peer.over = true;
        continue;
      }
      MUSTER_TRY(const Where where, parse_where(addresses.at(static_cast<size_t>(r))));
      const std::string& greeting = greetings.at(static_cast<size_t>(r));
      MUSTER_CHECK(greeting.size() <= kLongestGreeting, "a greeting is too long");
      peer.hello = encode(HelloHeader{.rank = rank_,
                                      .token = where.token,
                                      .length = static_cast<uint32_t>(greeting.size())},
                          greeting);
      const int error = start_connect(where.address, peer.out);
      if (error != 0) unreachable.emplace_back(r, error);
    }
  }
  thread_ = Thread("muster-watch", [this, unreachable] { run(unreachable); });
  return {};
}

bool PeerWatch::wait_all(Moment deadline) {
  std::unique_lock lock(mutex_);
  const auto all = [&] {
    return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& p) {
      return &p == &peers_[static_cast<size_t>(rank_)] || (p.greeting && p.connected);
    });
  };
  changed_.wait_until(lock, deadline, [&] { return gave_up_ || all(); });
  return !gave_up_ && all();
}

void PeerWatch::give_up() {
  const std::lock_guard lock(mutex_);
  gave_up_ = true;
  changed_.notify_all();
}

std::vector<int> PeerWatch::unheard() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !peers_[static_cast<size_t>(r)].greeting) ranks.push_back(r);
  }
  return ranks;
}

std::string PeerWatch::greeting(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(rank)].greeting.value();
}

bool PeerWatch::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(rank)].left;
}

bool PeerWatch::is_over(int rank) const {
  const std::lock_guard lock(mutex_);
  return peers_[static_cast<size_t>(rank)].over;
}

void PeerWatch::set_alarm(std::optional<Moment> moment) {
  {
    const std::lock_guard lock(mutex_);
    alarm_ = moment;
  }
  wake();
}

void PeerWatch::say(const Failure* failure) {
  FrameHeader header;
  std::string_view message;
  if (failure != nullptr) {
    message = std::string_view(failure->message).substr(0, kLongestText);
    header.type = FrameType::kFailed;
    header.kind = static_cast<uint8_t>(failure->kind);
    header.culprit = failure->culprit;
    header.length = static_cast<uint32_t>(message.size());
  }
  const std::string words = encode(header, message);
  const std::lock_guard lock(mutex_);
  for (Peer& peer : peers_) {
    if (peer.out && peer.connected) write_all(peer.out, words);
  }
}

std::vector<std::optional<std::string>> PeerWatch::ask(std::string_view question,
                                                       Duration at_most) {
  MUSTER_CHECK(question.size() <= kLongestText, "a question is too long");
  const std::lock_guard asking(asking_);
  std::unique_lock lock(mutex_);
  const std::string frame = encode(FrameHeader{.type = FrameType::kQuestion,
                                               .number = ++question_,
                                               .length = static_cast<uint32_t>(question.size())},
                                   question);
  for (Peer& peer : peers_) {
    peer.answer.reset();
    if (!peer.over && peer.out && peer.connected) write_all(peer.out, frame);
  }
  changed_.wait_for(lock, at_most, [&] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const Peer& p) { return p.over || p.answer.has_value(); });
  });
  std::vector<std::optional<std::string>> answers;
  answers.reserve(peers_.size());
  for (Peer& peer : peers_) answers.push_back(std::exchange(peer.answer, std::nullopt));
  return answers;
}

void PeerWatch::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

// Which descriptors, and in which order, run() relies on: wake, listener, strangers, then for each
// peer out and in (-1 where there is nothing to wait for).
std::vector<pollfd> PeerWatch::poll_set() const {
  std::vector<pollfd> set;
  set.push_back({wake_.get(), POLLIN, 0});
  set.push_back({listener_.fd.get(), POLLIN, 0});
  for (const Stranger& s : strangers_) set.push_back({s.fd.get(), POLLIN, 0});
  for (const Peer& p : peers_) {
    // Once the peer has connected to us, that connection tells more: its last words come before
    // its end. Until then a refusal or an end here is all there is.
    const bool out = !p.over && (!p.connected || !p.in);
    set.push_back({out ? p.out.get() : -1, static_cast<short>(p.connected ? 0 : POLLOUT), 0});
    set.push_back({!p.over && p.in ? p.in.get() : -1, POLLIN, 0});
  }
  return set;
}

void PeerWatch::run(const std::vector<std::pair<int, int>>& unreachable) {
  for (const auto& [rank, error] : unreachable) lose(rank, error);
  while (true) {
    std::vector<pollfd> set;
    size_t strangers = 0;
    int timeout = -1;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      set = poll_set();
      strangers = strangers_.size();
      if (alarm_) {
        const auto left = *alarm_ - std::chrono::steady_clock::now();
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        timeout = static_cast<int>(std::clamp<int64_t>(ms, 0, 1'000'000));
      }
    }
    const int ready = ::poll(set.data(), set.size(), timeout);
    MUSTER_CHECK(ready >= 0 || errno == EINTR, "poll failed");
    if (ready > 0) handle(set, strangers);
    ring_if_due();
  }
}

// New connections first, then what is heard, then what broke: so that last words are read before
// the end of the connection that came with them.
void PeerWatch::handle(const std::vector<pollfd>& set, size_t strangers) {
  if (set[0].revents != 0) {
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof(count));
  }
  if (set[1].revents != 0) accept_strangers();
  // Last words may have come along with the hello; poll() would not tell of them again.
  for (const int rank : hear_strangers(set, strangers)) on_in(rank);
  for (int r = 0; r < size_; ++r) {
    const size_t at = 2 + strangers + 2 * static_cast<size_t>(r);
    if (set[at + 1].revents != 0) on_in(r);
    if (set[at].revents != 0) on_out(r, set[at].revents);
  }
}

void PeerWatch::ring_if_due() {
  {
    const std::lock_guard lock(mutex_);
    if (!alarm_ || std::chrono::steady_clock::now() < *alarm_) return;
    alarm_.reset();
  }
  handlers_.alarm();
}

void PeerWatch::accept_strangers() {
  const std::lock_guard lock(mutex_);
  while (true) {
    Fd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    // Only members have business here; anything beyond is a port scan or a bug.
    if (strangers_.size() > static_cast<size_t>(2 * size_) + 16) return;
    strangers_.push_back({std::move(fd), {}});
  }
}

std::vector<int> PeerWatch::hear_strangers(const std::vector<pollfd>& set, size_t count) {
  const std::lock_guard lock(mutex_);
  std::vector<int> recognised;
  for (size_t i = count; i-- > 0;) {
    if (set[2 + i].revents != 0 && understand_hello(strangers_[i], recognised)) {
      strangers_.erase(strangers_.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  return recognised;
}

// True when nothing more is to be expected of this stranger as such. mutex_ is held.
bool PeerWatch::understand_hello(Stranger& stranger, std::vector<int>& recognised) {
  const bool open = read_some(stranger.fd, stranger.heard);
  HelloHeader hello;
  if (!decode(stranger.heard, hello)) return !open;
  if (hello.magic != HelloHeader::kMagic || hello.token != token_ || hello.rank < 0 ||
      hello.rank >= size_ || hello.rank == rank_ || hello.length > kLongestGreeting) {
    return true;
  }
  const size_t end = sizeof(hello) + hello.length;
  if (stranger.heard.size() < end) return !open;
  Peer& peer = peers_[static_cast<size_t>(hello.rank)];
  if (peer.in) return true;
  peer.greeting = stranger.heard.substr(sizeof(hello), hello.length);
  peer.heard = stranger.heard.substr(end);
  peer.in = std::move(stranger.fd);
  recognised.push_back(hello.rank);
  changed_.notify_all();
  return true;
}

void PeerWatch::on_out(int rank, short events) {
  std::unique_lock lock(mutex_);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.over) return;
  const int error = pending_error(peer.out);
  if (error == 0 && !peer.connected && (events & POLLOUT) != 0 && (events & POLLHUP) == 0) {
    peer.connected = true;
    write_all(peer.out, peer.hello);
    changed_.notify_all();
    return;
  }
  if (error == 0 && (events & (POLLERR | POLLHUP)) == 0) return;
  if (peer.in) return;  // which will tell
  lock.unlock();
  lose(rank, error);
}

void PeerWatch::on_in(int rank) {
  std::unique_lock lock(mutex_);
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.over) return;
  const bool open = read_some(peer.in, peer.heard);
  while (!peer.over && take_frame(rank, lock)) {
  }
  if (open || peer.over) return;
  lock.unlock();
  lose(rank, "has died: its connection closed without a word");
}

// Understands one frame of what was heard, if it is complete; the lock is given up for handlers.
bool PeerWatch::take_frame(int rank, std::unique_lock<std::mutex>& lock) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  FrameHeader header;
  if (!decode(peer.heard, header)) return false;
  const bool strange = header.magic != FrameHeader::kMagic || header.length > kLongestText;
  if (!strange && peer.heard.size() < sizeof(header) + header.length) return false;
  const std::string text = strange ? "" : peer.heard.substr(sizeof(header), header.length);
  peer.heard.erase(0, strange ? peer.heard.size() : sizeof(header) + header.length);
  switch (strange ? FrameType{} : header.type) {
    case FrameType::kLeaving:
      peer.over = peer.left = true;
      changed_.notify_all();
      return true;
    case FrameType::kFailed: {
      peer.over = true;
      changed_.notify_all();
      const auto last = static_cast<uint8_t>(FailureKind::kInternal);
      const bool known = header.culprit >= 0 && header.culprit < size_;
      Failure failure{.kind = static_cast<FailureKind>(std::min(header.kind, last)),
                      .culprit = known ? header.culprit : kNobody,
                      .message = text};
      lock.unlock();
      handlers_.failed(rank, std::move(failure));
      lock.lock();
      return true;
    }
    case FrameType::kQuestion: {
      const std::string answer = handlers_.asked(text).substr(0, kLongestText);
      if (!peer.connected) return true;
      write_all(peer.out, encode(FrameHeader{.type = FrameType::kAnswer,
                                             .number = header.number,
                                             .length = static_cast<uint32_t>(answer.size())},
                                 answer));
      return true;
    }
    case FrameType::kAnswer:
      if (header.number == question_) peer.answer = text;
      changed_.notify_all();
      return true;
  }
  // Not one of ours, or of another version: what it says means nothing.
  peer.over = true;
  lock.unlock();
  lose(rank, "does not speak our language: are all workers of the same version?");
  lock.lock();
  return true;
}

void PeerWatch::lose(int rank, const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    peers_[static_cast<size_t>(rank)].over = true;
    changed_.notify_all();
  }
  handlers_.lost(rank, how);
}

void PeerWatch::lose(int rank, int error) {
  if (error == ECONNREFUSED) return lose(rank, "is gone: its machine refused the connection");
  if (error == 0 || error == ECONNRESET || error == EPIPE) {
    return lose(rank, "is gone: it closed the connection before the group was formed");
  }
  lose(rank, fmt::format("cannot be reached: {}", std::generic_category().message(error)));
}

}  // namespace muster::comm

#include "muster/comm/peer_watch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <random>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "muster/base/check.h"

namespace muster::comm {
namespace {

using std::chrono::steady_clock;

// What is read of a peer at a time, so that none can hold the thread.
constexpr size_t kReadAtATime = 64 << 10;

uint64_t random_token() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
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

bool dials(int from, int to, int size) {
  const int distance = (to - from + size) % size;
  return 2 * distance < size || (2 * distance == size && from < to);
}

Result<std::unique_ptr<PeerWatch>> PeerWatch::listen(SocketAddress at, int rank, int size) {
  at.set_port(0);
  MUSTER_TRY(Listener listener, listen_at(at, std::max(size, 16)));
  return std::unique_ptr<PeerWatch>(new PeerWatch(std::move(listener), random_token(), rank, size));
}

PeerWatch::PeerWatch(Listener listener, uint64_t token, int rank, int size)
    : rank_(rank),
      size_(size),
      token_(token),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      listener_(std::move(listener), token, rank, size,
                {.strangers = static_cast<size_t>(size) + 16}),
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
  return fmt::format("{} {} {:x}", listener_.address().ip(), listener_.address().port(), token_);
}

std::string PeerWatch::hello_for(uint64_t token, bool probe, std::string_view greeting) const {
  return encode(HelloHeader{.rank = rank_,
                            .token = token,
                            .length = static_cast<uint32_t>(greeting.size()),
                            .probe = probe ? 1u : 0u},
                greeting);
}

void PeerWatch::notice_silence_of(const std::vector<int>& ranks) {
  MUSTER_CHECK(!thread_.running(), "call it before start()");
  const std::lock_guard lock(mutex_);
  for (Peer& p : peers_) p.notice_silence = false;
  for (const int r : ranks) peer(r).notice_silence = true;
}

Status PeerWatch::start(const std::vector<std::string>& addresses,
                        std::vector<std::string> greetings, Handlers handlers) {
  handlers_ = std::move(handlers);
  {
    const std::lock_guard lock(mutex_);
    const Moment now = steady_clock::now();
    peer(rank_).over = true;
    for (int k = 1; k < size_; ++k) {
      const int r = (rank_ + k) % size_;
      Peer& p = peer(r);
      MUSTER_TRY(const Where where, parse_where(addresses.at(static_cast<size_t>(r))));
      p.address = where.address;
      p.token = where.token;
      const std::string& greeting = greetings.at(static_cast<size_t>(r));
      MUSTER_CHECK(greeting.size() <= kLongestGreeting, "a greeting is too long");
      const bool dialling = dials(rank_, r, size_);
      p.hello = hello_for(dialling ? p.token : token_, false, greeting);
      if (dialling) p.dial_due = now;
      if (!dialling && size_ - k <= kProbes) probe(p);
    }
  }
  thread_ = Thread("muster-watch", [this] { run(); });
  return {};
}

bool PeerWatch::all_greeted() const {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !peer(r).greeting) return false;
  }
  return true;
}

bool PeerWatch::wait_all(Moment deadline) {
  Lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return gave_up_ || all_greeted(); });
  return !gave_up_ && all_greeted();
}

void PeerWatch::give_up() {
  const std::lock_guard lock(mutex_);
  gave_up_ = true;
  changed_.notify_all();
}

PeerWatch::Missing PeerWatch::missing() const {
  const std::lock_guard lock(mutex_);
  Missing missing;
  for (int r = 0; r < size_; ++r) {
    const Peer& p = peer(r);
    if (r == rank_ || p.greeting) continue;
    (p.connected || p.probe_connected ? missing.silent : missing.unreached).push_back(r);
  }
  return missing;
}

std::string PeerWatch::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_.empty() ? listener_.trouble() : trouble_;
}

std::string PeerWatch::greeting(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).greeting.value();
}

bool PeerWatch::has_left(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).left;
}

bool PeerWatch::is_over(int rank) const {
  const std::lock_guard lock(mutex_);
  return peer(rank).over;
}

void PeerWatch::set_alarm(std::optional<Moment> moment) {
  {
    const std::lock_guard lock(mutex_);
    alarm_ = moment;
  }
  wake();
}

void PeerWatch::say(const GroupFailure* failure) {
  FrameHeader header;
  std::string_view message;
  if (failure != nullptr) {
    message = std::string_view(failure->message).substr(0, kLongestText);
    header.type = FrameType::kFailed;
    header.kind = static_cast<uint8_t>(failure->kind);
    header.origin = failure->origin;
    header.length = static_cast<uint32_t>(message.size());
  }
  const std::string words = encode(header, message);
  const std::lock_guard lock(mutex_);
  for (const Peer& p : peers_) {
    if (p.fd && p.connected) write_now(p.fd, words);
  }
}

std::optional<std::string> PeerWatch::ask(int rank, std::string_view question, Duration at_most) {
  MUSTER_CHECK(question.size() <= kLongestText, "a question is too long");
  const std::lock_guard asking(asking_);
  Lock lock(mutex_);
  Peer& p = peer(rank);
  if (p.over || !p.fd || !p.connected) return std::nullopt;
  p.answer.reset();
  write_now(p.fd, encode(FrameHeader{.type = FrameType::kQuestion,
                                     .number = ++question_,
                                     .length = static_cast<uint32_t>(question.size())},
                         question));
  changed_.wait_for(lock, at_most, [&] { return p.over || p.answer.has_value(); });
  return std::exchange(p.answer, std::nullopt);
}

void PeerWatch::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

// The order that handle() relies on: wake, two for each peer (-1 where there is nothing to wait
// for), the listener's.
std::vector<pollfd> PeerWatch::poll_set(Moment now) const {
  std::vector<pollfd> set;
  set.push_back({wake_.get(), POLLIN, 0});
  for (const Peer& p : peers_) {
    const short wanted = p.connected ? POLLIN : POLLOUT;
    set.push_back({!p.over && p.fd ? p.fd.get() : -1, wanted, 0});
    const short sought = p.probe_connected ? POLLIN : POLLOUT;
    set.push_back({!p.over && p.probe ? p.probe.get() : -1, sought, 0});
  }
  listener_.add_to(set, now);
  return set;
}

std::optional<Moment> PeerWatch::next_due() const {
  std::optional<Moment> first = listener_.due();
  const auto consider = [&](const std::optional<Moment>& moment) {
    if (moment && (!first || *moment < *first)) first = moment;
  };
  consider(alarm_);
  for (const Peer& p : peers_) {
    if (p.over) continue;
    consider(p.dial_due);
    consider(p.give_up);
  }
  return first;
}

void PeerWatch::run() {
  while (true) {
    std::vector<pollfd> set;
    int timeout = -1;
    dial_due(steady_clock::now());
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      const Moment now = steady_clock::now();
      set = poll_set(now);
      if (const auto due = next_due()) {
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*due - now).count();
        timeout = static_cast<int>(std::clamp<int64_t>(ms, 0, 1'000'000));
      }
    }
    const int ready = ::poll(set.data(), set.size(), timeout);
    MUSTER_CHECK(ready >= 0 || errno == EINTR, "poll failed");
    handle(set);
    ring_if_due();
  }
}

// Guests first, then what peers sent, then what broke: so that a final message is read before the
// end of the connection that it came with.
void PeerWatch::handle(const std::vector<pollfd>& set) {
  if (set[0].revents != 0) {
    uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof(count));
  }
  admit(std::span(set).subspan(1 + 2 * static_cast<size_t>(size_)));
  for (int r = 0; r < size_; ++r) {
    const size_t at = 1 + 2 * static_cast<size_t>(r);
    if (set[at].revents != 0) {
      if ((set[at].events & POLLOUT) != 0) {
        on_dialling(r, set[at].revents);
      } else {
        on_readable(r);
      }
    }
    if (set[at + 1].revents != 0) on_probe(r, set[at + 1].revents);
  }
}

void PeerWatch::ring_if_due() {
  {
    const std::lock_guard lock(mutex_);
    if (!alarm_ || steady_clock::now() < *alarm_) return;
    alarm_.reset();
  }
  handlers_.alarm();
}

void PeerWatch::on_readable(int rank) {
  Lock lock(mutex_);
  Peer& p = peer(rank);
  if (p.over || !p.fd) return;
  if (!p.greeting && !read_reply(rank, lock)) return;
  int error = 0;
  const bool open = read_up_to(p.fd, p.heard, kReadAtATime, &error);
  while (!p.over && take_frame(rank, lock)) {
  }
  if (open || p.over) return;
  lock.unlock();
  if (is_silence(error)) {
    lose(rank, Loss::kUnreachable,
         fmt::format("cannot be reached any more: {}", std::generic_category().message(error)));
  } else {
    lose(rank, Loss::kClosed, "has died: its connection closed without a message");
  }
}

// The hello with which a peer that was dialled answers. False: there is nothing more to read.
bool PeerWatch::read_reply(int rank, Lock& lock) {
  Peer& p = peer(rank);
  HelloHeader hello;
  const auto valid = [&](const HelloHeader& h) { return h.rank == rank && h.token == p.token; };
  switch (read_hello(p.fd, p.heard, hello, valid)) {
    case HelloState::kIncomplete:
      return false;
    case HelloState::kComplete:
      greeted(p, p.heard.substr(sizeof(hello)));
      p.heard.clear();
      return true;
    case HelloState::kInvalid:
      break;
  }
  lock.unlock();
  lose(rank, 0);
  lock.lock();
  return false;
}

// Understands one frame of what was heard, if it is complete; the lock is given up for handlers.
bool PeerWatch::take_frame(int rank, Lock& lock) {
  Peer& p = peer(rank);
  FrameHeader header;
  if (!decode(p.heard, header)) return false;
  const bool strange = header.magic != FrameHeader::kMagic || header.length > kLongestText;
  if (!strange && p.heard.size() < sizeof(header) + header.length) return false;
  const std::string text = strange ? "" : p.heard.substr(sizeof(header), header.length);
  p.heard.erase(0, strange ? p.heard.size() : sizeof(header) + header.length);
  switch (strange ? FrameType{} : header.type) {
    case FrameType::kLeaving:
      p.over = p.left = true;
      changed_.notify_all();
      lock.unlock();
      handlers_.left(rank);
      lock.lock();
      return true;
    case FrameType::kFailed: {
      p.over = true;
      changed_.notify_all();
      const auto last = static_cast<uint8_t>(FailureKind::kInternal);
      const bool known = header.origin >= 0 && header.origin < size_;
      GroupFailure failure{.kind = static_cast<FailureKind>(std::min(header.kind, last)),
                           .origin = known ? header.origin : kNobody,
                           .message = text};
      lock.unlock();
      handlers_.failed(rank, std::move(failure));
      lock.lock();
      return true;
    }
    case FrameType::kQuestion: {
      lock.unlock();
      const std::string answer = handlers_.asked(text).substr(0, kLongestText);
      lock.lock();
      write_now(p.fd, encode(FrameHeader{.type = FrameType::kAnswer,
                                         .number = header.number,
                                         .length = static_cast<uint32_t>(answer.size())},
                             answer));
      return true;
    }
    case FrameType::kAnswer:
      if (header.number == question_) p.answer = text;
      changed_.notify_all();
      return true;
  }
  lock.unlock();
  lose(rank, Loss::kClosed,
       "sent a message that this worker cannot read: are all workers of the same version?");
  lock.lock();
  return true;
}

void PeerWatch::lose(int rank, Loss loss, const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    Peer& p = peer(rank);
    if (p.over) return;
    p.over = true;
    changed_.notify_all();
  }
  handlers_.lost(rank, loss, how);
}

void PeerWatch::lose(int rank, int error) {
  if (error == ECONNREFUSED) {
    return lose(rank, Loss::kClosed, "is gone: its machine refused the connection");
  }
  if (error == 0 || error == ECONNRESET || error == EPIPE) {
    return lose(rank, Loss::kClosed,
                "is gone: it closed the connection before the group was formed");
  }
  lose(rank, Loss::kUnreachable,
       fmt::format("cannot be reached: {}", std::generic_category().message(error)));
}

}  // namespace muster::comm

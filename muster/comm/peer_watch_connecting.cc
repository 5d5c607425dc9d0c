// The part of PeerWatch by which connections come about: dialling, probing, letting others in.
#include <poll.h>

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "muster/comm/peer_watch.h"

namespace muster::comm {
namespace {

using std::chrono::steady_clock;

// How long to wait for a descriptor, a port or a route before dialling again.
constexpr Duration kRedial = std::chrono::milliseconds(100);

// Whether an attempt to connect has come to its end, good or bad.
bool answered(const Fd& fd) {
  pollfd one{fd.get(), POLLOUT, 0};
  return fd && ::poll(&one, 1, 0) > 0;
}

// Errors that are this process's own, and may pass.
bool short_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM ||
         error == EADDRNOTAVAIL;
}

}  // namespace

void PeerWatch::dial_due(Moment now) {
  std::vector<std::pair<int, int>> failed;  // rank and errno
  {
    const std::lock_guard lock(mutex_);
    for (int r = 0; r < size_; ++r) {
      Peer& p = peer(r);
      if (p.over) continue;
      // If this process was stopped meanwhile, the answer may be there and not yet have been read.
      if (p.give_up && now >= *p.give_up && !answered(p.fd)) failed.emplace_back(r, p.dial_error);
      if (!p.dial_due || now < *p.dial_due) continue;
      p.dial_due.reset();
      if (!p.give_up) p.give_up = now + kDialTime;
      const int error = start_connect(p.address, p.fd);
      if (error != 0 && !redial(p, error, now)) failed.emplace_back(r, error);
    }
  }
  for (const auto& [rank, error] : failed) lose(rank, error);
}

bool PeerWatch::redial(Peer& p, int error, Moment now) {
  if (error == ECONNREFUSED || error == ECONNRESET) return false;  // its machine has answered
  p.fd.reset();
  p.dial_due = now + kRedial;
  if (short_of_resources(error)) {
    // Not a word against the peer: until the deadline, however long that is.
    p.give_up.reset();
    trouble_ = fmt::format("this process could not make a connection: {} (see `ulimit -n`)",
                           std::generic_category().message(error));
  } else {
    p.dial_error = error;
  }
  return true;
}

void PeerWatch::probe(Peer& p) {
  if (start_connect(p.address, p.probe) != 0) p.probe.reset();
}

void PeerWatch::admit(std::span<const pollfd> polled) {
  const std::lock_guard lock(mutex_);
  for (auto& guest : listener_.handle(polled, steady_clock::now())) {
    if (guest.probe) {
      probes_of_others_.push_back(std::move(guest.fd));
      continue;
    }
    Peer& p = peer(guest.rank);
    // One connection for each pair, and only from the side that is to dial.
    if (p.over || p.fd || !dials(guest.rank, rank_, size_)) continue;
    p.fd = std::move(guest.fd);
    connected(p);
    greeted(p, std::move(guest.greeting));
  }
}

// mutex_ is held, here and below.
void PeerWatch::connected(Peer& p) {
  p.connected = true;
  notice_silence(p.fd, p.address, kSilence);
  write_now(p.fd, p.hello);
}

void PeerWatch::greeted(Peer& p, std::string greeting) {
  p.greeting = std::move(greeting);
  if (!p.notice_silence) ignore_silence(p.fd);
  p.probe.reset();
  if (all_greeted()) {
    // Nobody has to be let in any more.
    listener_.close();
    probes_of_others_.clear();
  }
  changed_.notify_all();
}

void PeerWatch::on_dialling(int rank, short events) {
  Lock lock(mutex_);
  Peer& p = peer(rank);
  if (p.over || p.connected) return;
  const int error = pending_error(p.fd);
  if (error == 0 && (events & POLLOUT) != 0 && (events & POLLHUP) == 0) {
    p.give_up.reset();
    trouble_.clear();
    connected(p);
    return;
  }
  if (error == 0 && (events & (POLLERR | POLLHUP)) == 0) return;
  if (error != 0 && redial(p, error, steady_clock::now())) return;
  lock.unlock();
  lose(rank, error);
}

// A probe tells of a peer that has died before it dialled. Whether this member can reach that peer
// does not matter as long as the peer can reach this member.
void PeerWatch::on_probe(int rank, short events) {
  Lock lock(mutex_);
  Peer& p = peer(rank);
  if (p.over || p.fd || !p.probe) return;
  const int error = pending_error(p.probe);
  if (!p.probe_connected && error == 0 && (events & POLLHUP) == 0) {
    p.probe_connected = true;
    write_now(p.probe, hello_for(p.token, true, {}));
    return;
  }
  const bool reached = p.probe_connected || error == ECONNREFUSED || error == ECONNRESET;
  p.probe_connected = false;
  p.probe.reset();
  lock.unlock();
  if (reached) lose(rank, error);
}

}  // namespace muster::comm

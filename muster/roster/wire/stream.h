// The client's end of one Session stream, on a completion queue that somebody else empties.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>

#include "muster/roster/wire/roster.grpc.pb.h"

namespace muster::roster::wire {

// Not safe for concurrent use: whoever uses it holds the same lock for all calls, done() included.
class Stream {
 public:
  // What comes back from the completion queue, exactly once for each operation.
  class Completion {
   public:
    virtual ~Completion() = default;
    virtual Stream& stream() = 0;
    virtual void done(bool ok) = 0;
  };

  // Who hears of what happens.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void on_open(Stream& stream) = 0;
    virtual void on_message(Stream& stream, v1::ToWorker&& message) = 0;
    virtual void on_broken(Stream& stream) = 0;  // nothing more will come; told once
  };

  Stream(const std::string& address, grpc::CompletionQueue& queue, Listener& listener);

  void send(const v1::FromWorker& message);
  // Ends it in good order: what was sent arrives, then the other side ends it too.
  void close();
  // Ends it now. on_broken follows, if it was not told yet.
  void cancel() { context_.TryCancel(); }
  // No operation is outstanding: it may be destroyed.
  bool idle() const { return out_ == 0; }

 private:
  template <void (Stream::*handler)(bool)>
  struct CompletionOf final : Completion {
    explicit CompletionOf(Stream& owner) : call(owner) {}
    Stream& stream() override { return call; }
    void done(bool ok) override {
      --call.out_;
      (call.*handler)(ok);
    }
    Stream& call;
  };
  Completion* give(Completion& completion) {
    ++out_;
    return &completion;
  }
  void opened(bool ok);
  void read(bool ok);
  void written(bool ok);
  void closed(bool) {}
  void finished(bool) {}
  void write_or_close();
  void end();

  Listener& listener_;
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  CompletionOf<&Stream::opened> opened_{*this};
  CompletionOf<&Stream::read> read_{*this};
  CompletionOf<&Stream::written> written_{*this};
  CompletionOf<&Stream::closed> closed_{*this};
  CompletionOf<&Stream::finished> finished_{*this};
  int out_ = 0;
  bool open_ = false;
  bool writing_ = false;
  bool closing_ = false;
  bool ended_ = false;
  v1::ToWorker incoming_;
  std::deque<v1::FromWorker> waiting_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::FromWorker, v1::ToWorker>> stream_;
};

}  // namespace muster::roster::wire

// The calls of a gRPC server on one completion queue, without threads of their own.
//
// gRPC hands back tags; a tag here is a Completion: an object that knows what to do next. Every
// Completion that was given to gRPC comes back exactly once, so a call counts those that are out
// and ends itself when the last one is back.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>

#include "muster/roster/registrar.h"
#include "muster/roster/wire/roster.grpc.pb.h"

namespace muster::roster::wire {

// Messages of sessions are bytes here: those that go to many workers are made once
// (message_bytes.h).
using Service = v1::Coordinator::WithRawMethod_Session<
    v1::Coordinator::WithAsyncMethod_Exited<v1::Coordinator::WithAsyncMethod_Status<
        v1::Coordinator::WithAsyncMethod_Offer<v1::Coordinator::Service>>>>;

class Completion {
 public:
  virtual ~Completion() = default;
  // `ok`: what was asked of gRPC was done. Called with the server's mutex held.
  virtual void done(bool ok) = 0;
};

// What calls need of the server. All of it is used with the server's mutex held.
class CallHandler {
 public:
  virtual ~CallHandler() = default;
  virtual Service& service() = 0;
  virtual grpc::ServerCompletionQueue* queue() = 0;
  virtual bool closed() const = 0;  // no operation may be started any more
  virtual SessionId opened(class SessionCall* call) = 0;
  virtual void received(SessionId session, v1::FromWorker&& message) = 0;
  virtual void ended(SessionId session) = 0;
  virtual void exited(const v1::ExitedRequest& request) = 0;
  virtual void status(v1::StatusReply& reply) = 0;
  virtual void offer(v1::OfferReply& reply) = 0;
};

// One worker's stream. Owns itself: it is gone when the stream is.
class SessionCall {
 public:
  // Waits for the next worker to come; makes its own successor when one has.
  static void expect(CallHandler& handler);

  // Messages leave in order; after `close` nothing follows.
  void send(const grpc::ByteBuffer& message, bool close);
  // Ends it now, whether the other end wants to or not. CallHandler::ended() follows.
  void cancel() { context_.TryCancel(); }

 private:
  explicit SessionCall(CallHandler& handler);

  template <void (SessionCall::*handler)(bool)>
  struct CompletionOf final : Completion {
    explicit CompletionOf(SessionCall& owner) : call(owner) {}
    void done(bool ok) override {
      --call.out_;
      (call.*handler)(ok);
      if (call.out_ == 0) delete &call;
    }
    SessionCall& call;
  };

  // The next operation of gRPC will come back to this completion.
  Completion* give(Completion& completion) {
    ++out_;
    return &completion;
  }
  void accepted(bool ok);
  void read(bool ok);
  void written(bool ok);
  void finished(bool) {}
  void write_next();
  void finish();

  CallHandler& handler_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_{&context_};
  CompletionOf<&SessionCall::accepted> accepted_{*this};
  CompletionOf<&SessionCall::read> read_{*this};
  CompletionOf<&SessionCall::written> written_{*this};
  CompletionOf<&SessionCall::finished> finished_{*this};
  int out_ = 0;
  SessionId session_ = 0;
  grpc::ByteBuffer incoming_;
  std::deque<grpc::ByteBuffer> waiting_;
  bool writing_ = false;
  bool closing_ = false;
  bool broken_ = false;
  bool finishing_ = false;
};

// A call with one question and one answer, which is there at once.
template <typename Request, typename Reply>
class QuickCall {
 public:
  using Expect = void (Service::*)(grpc::ServerContext*, Request*,
                                   grpc::ServerAsyncResponseWriter<Reply>*, grpc::CompletionQueue*,
                                   grpc::ServerCompletionQueue*, void*);
  using Answer = void (*)(CallHandler&, const Request&, Reply&);

  static void expect(CallHandler& handler, Expect expect, Answer answer) {
    auto* call = new QuickCall(handler, expect, answer);
    (handler.service().*expect)(&call->context_, &call->request_, &call->writer_, handler.queue(),
                                handler.queue(), &call->accepted_);
  }

 private:
  QuickCall(CallHandler& handler, Expect expect, Answer answer)
      : handler_(handler), expect_(expect), answer_(answer) {}

  struct Accepted final : Completion {
    explicit Accepted(QuickCall& owner) : call(owner) {}
    void done(bool ok) override { call.accepted(ok); }
    QuickCall& call;
  };
  struct Finished final : Completion {
    explicit Finished(QuickCall& owner) : call(owner) {}
    void done(bool) override { delete &call; }
    QuickCall& call;
  };
  void accepted(bool ok) {
    if (!ok || handler_.closed()) {
      delete this;
      return;
    }
    expect(handler_, expect_, answer_);
    Reply reply;
    answer_(handler_, request_, reply);
    writer_.Finish(reply, grpc::Status::OK, &finished_);
  }

  CallHandler& handler_;
  Expect expect_;
  Answer answer_;
  grpc::ServerContext context_;
  Request request_;
  grpc::ServerAsyncResponseWriter<Reply> writer_{&context_};
  Accepted accepted_{*this};
  Finished finished_{*this};
};

}  // namespace muster::roster::wire

// One end of a connection of network.h, on a completion queue. Private to network.cc.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muster/ps/net/network.h"

namespace muster::ps {

// What comes back from the completion queue, exactly once for each operation.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void done(bool ok) = 0;
};

// A batch: messages, each with its size before it. Each begins at a multiple of 8 bytes, so that
// the numbers in it lie where they may be read, if the batch does. Nothing is behind the last one:
// a batch of one message is alike in all versions, so the Hello of a program of another version is
// read, and refused with a sentence that says so (control.h).

// Takes the next message, which shares the batch, from `rest`, which is what is left of it. None:
// this is no batch.
std::optional<Bytes> take_message(const Bytes& batch, std::string_view& rest);

class Stream {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void on_open(Stream& stream) = 0;
    virtual void on_batch(Stream& stream, const Bytes& batch) = 0;
    virtual void on_broken(Stream& stream) = 0;  // told once
  };

  explicit Stream(Listener& listener) : listener_(listener) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Adds a message to the next batch. False: the stream is not open.
  bool add(Packet message);
  // Writes the batch, if nothing is being written.
  void flush();
  size_t waiting() const { return writing_ + waiting_; }
  virtual void cancel() = 0;
  // Begins no operation any more: the queue is about to be shut down.
  void stop() { stopped_ = true; }
  // No operation is outstanding: it may be destroyed.
  bool idle() const { return out_ == 0; }

  ConnectionId id = 0;

 protected:
  template <void (Stream::*handler)(bool)>
  struct CompletionOf final : Completion {
    explicit CompletionOf(Stream& owner) : stream(owner) {}
    void done(bool ok) override {
      --stream.out_;
      (stream.*handler)(ok);
    }
    Stream& stream;
  };
  Completion* give(Completion& completion) {
    ++out_;
    return &completion;
  }
  void opened(bool ok);

  CompletionOf<&Stream::opened> opened_{*this};

 private:
  virtual void start_read(grpc::ByteBuffer& into, Completion* tag) = 0;
  virtual void start_write(const grpc::ByteBuffer& from, Completion* tag) = 0;
  virtual void start_finish(Completion* tag) = 0;
  void read(bool ok);
  void written(bool ok);
  void finished(bool) {}
  void end();

  Listener& listener_;
  CompletionOf<&Stream::read> read_{*this};
  CompletionOf<&Stream::written> written_{*this};
  CompletionOf<&Stream::finished> finished_{*this};
  int out_ = 0;
  bool open_ = false;
  size_t writing_ = 0;  // bytes; 0: nothing
  bool ended_ = false;
  bool stopped_ = false;
  grpc::ByteBuffer incoming_;
  // Small messages are copied one behind the other.
  struct Batch {
    void add(Packet message);
    void end_small();

    size_t size = 0;  // bytes
    std::vector<grpc::Slice> slices;
    std::string small;  // behind the slices
  };
  std::deque<Batch> batches_;
  size_t waiting_ = 0;  // bytes in them
};

class OutgoingStream final : public Stream {
 public:
  OutgoingStream(const std::string& address, grpc::CompletionQueue& queue, Listener& listener);
  void cancel() override { context_.TryCancel(); }

 private:
  void start_read(grpc::ByteBuffer& into, Completion* tag) override { call_->Read(&into, tag); }
  void start_write(const grpc::ByteBuffer& from, Completion* tag) override {
    call_->Write(from, tag);
  }
  void start_finish(Completion* tag) override { call_->Finish(&status_, tag); }

  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::Status status_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

class IncomingStream final : public Stream {
 public:
  // Waits for somebody to connect.
  IncomingStream(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue& queue,
                 Listener& listener);
  void cancel() override { context_.TryCancel(); }

 private:
  void start_read(grpc::ByteBuffer& into, Completion* tag) override { call_.Read(&into, tag); }
  void start_write(const grpc::ByteBuffer& from, Completion* tag) override {
    call_.Write(from, tag);
  }
  void start_finish(Completion* tag) override { call_.Finish(grpc::Status::OK, tag); }

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter call_{&context_};
};

}  // namespace muster::ps

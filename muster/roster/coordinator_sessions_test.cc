// Connections that are no worker's: the coordinator closes them from its end. Real connections,
// with a client that does nothing by itself.
#include <grpcpp/grpcpp.h>

#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/roster/client.h"
#include "muster/roster/coordinator.h"
#include "muster/roster/wire/channel.h"
#include "muster/roster/wire/roster.grpc.pb.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 30s;  // until a test fails; never waited for in full

// One end of a session, and what it was told.
class BareSession {
 public:
  explicit BareSession(const std::string& address)
      : stub_(v1::Coordinator::NewStub(wire::open_channel(address))) {
    context_.set_deadline(std::chrono::system_clock::now() + kPatience);
    stream_ = stub_->Session(&context_);
  }
  void send(const v1::FromWorker& message) { stream_->Write(message); }
  bool read() { return stream_->Read(&told_); }
  const v1::ToWorker& told() const { return told_; }
  // How the other end has ended it.
  grpc::StatusCode end() {
    while (read()) {
    }
    return stream_->Finish().error_code();
  }

 private:
  std::unique_ptr<v1::Coordinator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromWorker, v1::ToWorker>> stream_;
  v1::ToWorker told_;
};

class CoordinatorSessionsTest : public testing::Test {
 protected:
  CoordinatorSessionsTest() {
    CoordinatorOptions options;
    options.roster.job = "job";
    options.roster.term = term_from_clock(clock_);
    options.session_timeout = 300ms;
    coordinator_ = Coordinator::start(std::move(options), clock_).value();
  }
  static v1::FromWorker join_of(const std::string& job, uint64_t incarnation) {
    JoinRequest request;
    request.job = job;
    request.key = {"w", incarnation};
    v1::FromWorker message;
    to_wire(FromWorker{request}, message);
    return message;
  }

  const SystemClock clock_;
  std::unique_ptr<Coordinator> coordinator_;
};

TEST(Wire, KeepsWhatAHeartbeatSays) {
  const Heartbeat beat{.sequence = 1,
                       .known = 2,
                       .group = 3,
                       .broken = 4,
                       .suspect = "5",
                       .trouble = "6",
                       .faulty = "c",
                       .activity = Activity::kWaiting,
                       .step = 7,
                       .progress = 8,
                       .still = 9ms,
                       .lane_seconds = 10,
                       .leaving = true,
                       .finished = true};
  v1::FromWorker message;
  to_wire(FromWorker{beat}, message);
  EXPECT_EQ(from_wire(message.heartbeat()), beat);
}

TEST_F(CoordinatorSessionsTest, OneThatNeverAsksToJoinIsClosed) {
  BareSession silent(coordinator_->address());
  EXPECT_EQ(silent.end(), grpc::StatusCode::CANCELLED);
}

TEST_F(CoordinatorSessionsTest, HeartbeatsOfNobodyDoNotKeepItOpen) {
  BareSession session(coordinator_->address());
  v1::FromWorker message;
  to_wire(FromWorker{Heartbeat{}}, message);
  std::jthread beats([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      session.send(message);
      std::this_thread::sleep_for(50ms);
    }
  });
  EXPECT_EQ(session.end(), grpc::StatusCode::CANCELLED);
}

TEST_F(CoordinatorSessionsTest, OneThatDoesNotHangUpAfterItsRefusalIsClosed) {
  BareSession session(coordinator_->address());
  session.send(join_of("another", 1));
  ASSERT_TRUE(session.read());
  EXPECT_TRUE(session.told().has_refused());
  EXPECT_EQ(session.end(), grpc::StatusCode::CANCELLED);
}

TEST_F(CoordinatorSessionsTest, AWorkerStays) {
  ClientOptions options;
  options.addresses = {coordinator_->address()};
  options.follower.join.job = "job";
  options.follower.join.key.id = "w";
  const auto client = Client::start(options, clock_).value();
  ASSERT_EQ(client->next(kPatience).kind, Instruction::Kind::kForm);
  // Others that come and are closed meanwhile show that the time has passed.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(BareSession(coordinator_->address()).end(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(client->connected());
  ASSERT_EQ(coordinator_->status().workers.size(), 1U);
  EXPECT_EQ(sequence_of(coordinator_->status().roster.number), 1U);
}

}  // namespace
}  // namespace muster::roster

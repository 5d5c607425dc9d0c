// The questions that are asked once, by tools on whatever machine.
#include <chrono>

#include "muster/roster/coordinator.h"
#include "muster/roster/wire/channel.h"
#include "muster/roster/wire/roster.grpc.pb.h"
#include "muster/roster/wire/wire.h"

namespace muster::roster {

namespace {

void set_deadline(grpc::ClientContext& context, Duration timeout) {
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(timeout));
}

Error no_answer(const std::string& address, const grpc::Status& status) {
  const bool nobody = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  return Error(ErrorKind::kIo, "no coordinator answers at {}: {}", address,
               nobody ? "nobody listens there, or it cannot be reached" : status.error_message());
}

}  // namespace

Status send_exited(const std::string& address, const std::string& job, const std::string& id,
                   int64_t process, const std::string& how, Duration timeout) {
  grpc::ClientContext context;
  set_deadline(context, timeout);
  v1::ExitedRequest request;
  request.set_job(job);
  request.set_id(id);
  request.set_process(process);
  request.set_how(how);
  v1::ExitedReply reply;
  const auto status =
      v1::Coordinator::NewStub(wire::open_channel(address))->Exited(&context, request, &reply);
  if (!status.ok()) return no_answer(address, status);
  return {};
}

Result<StatusReport> fetch_status(const std::string& address, Duration timeout) {
  grpc::ClientContext context;
  set_deadline(context, timeout);
  v1::StatusReply reply;
  const auto status = v1::Coordinator::NewStub(wire::open_channel(address))
                          ->Status(&context, v1::StatusRequest(), &reply);
  if (!status.ok()) return no_answer(address, status);
  return from_wire(reply);
}

Result<RunOffer> fetch_offer(const std::string& address, Duration timeout) {
  grpc::ClientContext context;
  set_deadline(context, timeout);
  v1::OfferReply reply;
  const auto status = v1::Coordinator::NewStub(wire::open_channel(address))
                          ->Offer(&context, v1::OfferRequest(), &reply);
  if (!status.ok()) return no_answer(address, status);
  return from_wire(reply);
}

}  // namespace muster::roster

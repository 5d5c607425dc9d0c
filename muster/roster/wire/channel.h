// How both ends set up gRPC: quick to notice a dead peer, quick to try again, messages of any size.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace muster::roster::wire {

// Once for the whole process; the two below call it.
// - gRPC writes to standard error what we tell the person in a sentence of our own. After this it
//   does not, unless GRPC_VERBOSITY or GRPC_TRACE asks for it.
// - Abseil, which gRPC takes its locks from, does not look for deadlocks.
void set_up_grpc();

void tune(grpc::ServerBuilder& builder);
// A channel of its own, that shares no connection and no back-off with others.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address);

}  // namespace muster::roster::wire

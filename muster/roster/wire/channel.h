// How both ends set up gRPC: quick to notice a dead peer, quick to try again, messages of any size.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace muster::roster::wire {

void tune(grpc::ServerBuilder& builder);
// A channel of its own, that shares no connection and no back-off with others.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address);

}  // namespace muster::roster::wire

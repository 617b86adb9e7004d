// gRPC settings that both ends of a connection of ours must share, and why each is as it is.
//
// For whoever builds a server or a channel: ps, worker, chief, cli. Thread-safe: pure functions.

#ifndef PROTO_CHANNEL_ARGUMENTS_H_
#define PROTO_CHANNEL_ARGUMENTS_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

namespace lagrange {

// Above any frame (proto/frame.h) and any shard map; gRPC's own limit of 4 MiB is below a single variable.
inline constexpr int kMaxMessageBytes = 64 << 20;

// Also: a port that another process listens on is an error of AddListeningPort (its *selected_port stays 0).
void ApplyServerArguments(grpc::ServerBuilder* builder);

// Each channel made with these has connections of its own.
grpc::ChannelArguments ClientChannelArguments();

}  // namespace lagrange

#endif  // PROTO_CHANNEL_ARGUMENTS_H_

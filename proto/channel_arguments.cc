#include "proto/channel_arguments.h"

#include <grpc/grpc.h>

#include <functional>
#include <string>

namespace lagrange {
namespace {

// A dead peer is noticed after 10 + 10 s without a byte; ps and chief are told sooner by their heartbeats.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
// Half of the client's interval: a server that expects fewer pings ends the connection (ENHANCE_YOUR_CALM).
constexpr int kMinPingIntervalMs = kKeepaliveMs / 2;
constexpr int kInitialBackoffMs = 100;
// gRPC's own limit of 120 s would leave a worker idle long after its ps has come back.
constexpr int kMaxBackoffMs = 1'000;
// Also the time that one attempt to connect may take.
constexpr int kMinBackoffMs = 2'000;
constexpr int kLookaheadBytes = 4 << 20;
constexpr int kMaxHttp2FrameBytes = 1 << 20;

void SetSharedArguments(const std::function<void(const std::string& name, int value)>& set) {
  // The probe grows windows, and with them live buffers, without an end: twice the receiver's CPU on loopback.
  set(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookaheadBytes);
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxHttp2FrameBytes);
  set(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, kMaxMessageBytes);
  set(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, kMaxMessageBytes);
  set(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  set(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A pull may wait for minutes without a byte either way: pings go on all the same.
  set(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  set(GRPC_ARG_HTTP2_MIN_SENT_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
}

}  // namespace

void ApplyServerArguments(grpc::ServerBuilder* builder) {
  SetSharedArguments([builder](const std::string& name, int value) { builder->AddChannelArgument(name, value); });
  // By default a second server binds the same port without an error and takes half the traffic.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs / 2);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
}

grpc::ChannelArguments ClientChannelArguments() {
  grpc::ChannelArguments arguments;
  SetSharedArguments([&arguments](const std::string& name, int value) { arguments.SetInt(name, value); });
  // A proxy of the environment is for the web; the cluster's own traffic would end in it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kInitialBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  return arguments;
}

}  // namespace lagrange

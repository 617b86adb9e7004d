// The ps's end of the data path: streams of frames in, engine calls, frames out.
//
// Thread-safe. Runs on gRPC's callback threads and owns none. A push's parts are copied, shard by shard, to an aligned
// buffer that is used again and again, and applied as soon as one is whole, while it is in cache. Pull replies leave as
// slices over parameter memory, each holding the version it shows; they are spread over the streams of the asking
// session (the streams that name the same kSessionMetadataKey), and end with any of them. Writes wait in a queue of
// their stream alone.
//
// Bounded: streams and requests of a session, open pushes, queued replies; a shard's size comes from the engine, never
// from the peer. A frame that breaks the protocol ends its session with INVALID_ARGUMENT; one that the engine refuses
// is answered, and the rest of its push dropped.
//
// Lock order: server, session, stream; no lock is held while the engine is called, but the session's for BeginPush.

#ifndef PS_DATA_PLANE_SERVER_H_
#define PS_DATA_PLANE_SERVER_H_

#include <grpcpp/generic/async_generic_service.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/data_plane.pb.h"
#include "ps/core/engine.h"

namespace lagrange {

struct DataPlaneServerOptions {
  int64_t chunk_bytes = int64_t{1} << 20;
  // A part that the engine refused as wrong in itself (not finite, wrong size). On any thread; must not block.
  std::function<void(const RequestHeader& request, const std::string& message)> on_bad_push;
};

class DataPlaneServer {
 public:
  // `engine` outlives this.
  DataPlaneServer(Engine* engine, const DataPlaneServerOptions& options);
  // REQUIRES: no stream is open: after grpc::Server::Shutdown.
  ~DataPlaneServer();

  // For ServerBuilder::RegisterCallbackGenericService; lives as long as this.
  grpc::CallbackGenericService* service();

  // Sends what a command to the engine, or time, has set free.
  void Deliver(PsEffects effects);

  // Ends all streams and refuses new ones, so that grpc::Server::Shutdown has nothing to wait for.
  void CloseStreams();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lagrange

#endif  // PS_DATA_PLANE_SERVER_H_

// The worker's end of the data path: streams to every ps, pulls straight into parameter memory, pushes from gradients.
//
// Thread-safe. Callbacks run on the client's own threads and must not block; they may call back into the client.
// Requests go out at once and are answered in any order; a request is answered at most once, and never after its ps has
// been reconnected (OnReconnected comes instead, after which the caller sends again what it still wants). Resending a
// request_id that is outstanding replaces it. Sizes and offsets in replies are checked against the layout before any
// byte is written. Lock order: none is held while a callback runs.

#ifndef WORKER_PS_CLIENT_H_
#define WORKER_PS_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"

namespace lagrange {

// Where each shard's elements lie: base pointer of its variable plus element_begin, and the version pulled. The memory
// outlives the client's use of it (until the request is answered, replaced, or the ps is reconnected).
struct ParameterLayout {
  // One for each variable of the map.
  std::vector<float*> variables;
  // One for each shard of the map; written by pulls, read by pushes.
  std::vector<uint64_t>* versions = nullptr;
};

struct PsClientOptions {
  int channels_per_ps = 2;
  int64_t chunk_bytes = int64_t{1} << 20;
};

class PsClient {
 public:
  // kind: PULL_REPLY or PUSH_REPLY.
  using ReplyCallback = std::function<void(int32_t ps_index, uint64_t request_id, FrameKind kind, const ReplyHeader&)>;
  using ReconnectedCallback = std::function<void(int32_t ps_index)>;

  virtual ~PsClient() = default;

  // Connects to the map's ps (keeping connections whose address and incarnation are unchanged). InvalidArgument: the
  // map is malformed.
  virtual absl::Status UseShardMap(const ShardMap& map) = 0;

  virtual void Pull(int32_t ps_index, uint64_t request_id, const RequestHeader& header,
                    const ParameterLayout& destination) = 0;
  // gradients.variables are read until the answer; versions are echoed. shards empty: all of the ps.
  virtual void Push(int32_t ps_index, uint64_t request_id, const RequestHeader& header,
                    const ParameterLayout& gradients, absl::Span<const uint32_t> shards) = 0;

  // Gives up an outstanding request: once this returns, no byte of its answer is written and its gradients aren't read
  // (a frame being copied is waited for), so that the memory can serve another request. No callback comes for it,
  // unless it runs already. An unknown id does nothing. May wait for the network: not from a callback.
  virtual void Forget(int32_t ps_index, uint64_t request_id) = 0;
};

std::unique_ptr<PsClient> NewPsClient(const PsClientOptions& options, PsClient::ReplyCallback on_reply,
                                      PsClient::ReconnectedCallback on_reconnected);

}  // namespace lagrange

#endif  // WORKER_PS_CLIENT_H_

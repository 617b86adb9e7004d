// One ps as its client sees it: channels, the session of streams over them, and the requests outstanding there.
//
// For PsClient alone. PsPeer is thread-safe. It holds its own streams' ends, and they hold it, until Close.

#ifndef WORKER_PS_PEER_H_
#define WORKER_PS_PEER_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"
#include "proto/frame.h"
#include "worker/delayed_calls.h"
#include "worker/frame_call.h"
#include "worker/ps_client.h"

namespace lagrange {

// A valid map, and what each ps has by it. Immutable.
struct MapLayout {
  struct Part {
    std::vector<uint32_t> shards;
    int64_t total_bytes = 0;
  };

  ShardMap map;
  absl::flat_hash_map<int32_t, Part> parts;
  // Of a shard among those of its ps.
  std::vector<size_t> positions;
};

// REQUIRES: ValidateShardMap(map) is OK.
std::shared_ptr<const MapLayout> LayOut(const ShardMap& map);

// What the client's parts share, and what its destructor waits for.
struct PsClientShared {
  PsClientOptions options;
  PsClient::ReplyCallback on_reply;
  PsClient::ReconnectedCallback on_reconnected;
  DelayedCalls calls;
  std::string session_prefix;
  std::atomic<uint64_t> sessions{0};

  absl::Mutex mutex;
  // Streams that gRPC hasn't let go of, and pushes whose gradients it may still read.
  int64_t live ABSL_GUARDED_BY(mutex) = 0;

  void AddLive() {
    absl::MutexLock lock(&mutex);
    ++live;
  }
  void RemoveLive() {
    absl::MutexLock lock(&mutex);
    --live;
  }
};

// PsClientShared by the slices of one sending of a push: exists while gRPC may read the gradients.
class SendHold {
 public:
  explicit SendHold(std::shared_ptr<PsClientShared> shared) : shared_(std::move(shared)) { shared_->AddLive(); }
  SendHold(const SendHold&) = delete;
  SendHold& operator=(const SendHold&) = delete;
  ~SendHold() {
    // On a thread of gRPC's that may hold its locks: the answer goes out from another.
    if (when_free_) shared_->calls.Run(absl::ZeroDuration(), std::move(when_free_));
    shared_->RemoveLive();
    freed_->Notify();
  }

  // Notified when it is gone.
  std::shared_ptr<absl::Notification> freed() const { return freed_; }
  // REQUIRES: the caller shares the hold.
  void set_when_free(std::function<void()> when_free) { when_free_ = std::move(when_free); }

 private:
  const std::shared_ptr<PsClientShared> shared_;
  const std::shared_ptr<absl::Notification> freed_ = std::make_shared<absl::Notification>();
  std::function<void()> when_free_;
};

struct PsRequest {
  FrameKind kind = FRAME_KIND_UNSPECIFIED;
  uint64_t id = 0;
  RequestHeader header;
  ParameterLayout memory;
  std::shared_ptr<const MapLayout> layout;
  uint64_t attempt = 0;

  // Push: what goes out, and the hold of the latest sending.
  std::vector<uint32_t> shards;
  std::shared_ptr<SendHold> hold;

  // Pull: what has come in. Under the peer's lock.
  bool replied = false;
  ReplyHeader reply;
  int64_t received_bytes = 0;
  std::vector<int64_t> received_counts;
  // Threads that are copying to `memory`.
  int writers = 0;

  const ShardPlacement& placement(uint32_t shard) const { return layout->map.shards(static_cast<int>(shard)); }
  float* begin(uint32_t shard) const {
    return memory.variables[placement(shard).variable()] + placement(shard).element_begin();
  }
};

// One ps: its channels, the session of streams over them, and what is outstanding there. Thread-safe.
class PsPeer : public std::enable_shared_from_this<PsPeer> {
 public:
  PsPeer(std::shared_ptr<PsClientShared> shared, const PsAddress& address, bool replaces_another);

  bool Is(const PsAddress& address) const {
    return address.address() == address_.address() && address.incarnation() == address_.incarnation();
  }
  void Connect();
  // No callback begins after it.
  void Close();
  void Send(std::shared_ptr<PsRequest> request);
  // PsClient::Forget, for either kind.
  void Forget(uint64_t request_id);

 private:
  using RequestKey = std::pair<int, uint64_t>;

  static RequestKey KeyOf(FrameKind kind, uint64_t id) { return {kind, id}; }

  void ForgetPush(std::shared_ptr<PsRequest> push);

  void OnConnected(uint64_t session);
  void OnStreamDone();
  bool OnFrame(const grpc::ByteBuffer& buffer);
  bool OnPullReply(FrameReader* frame);
  // Whether the frame's bytes may be written. If the reply is wrong, request->reply says how.
  bool CheckPullReply(const FrameHeader& header, PsRequest* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnPushReply(const FrameHeader& header);
  void Answer(uint64_t request_id, FrameKind kind, const ReplyHeader& reply);

  void Transmit(const std::shared_ptr<PsRequest>& request, const std::vector<std::shared_ptr<FrameCall>>& streams);
  void TransmitPush(const PsRequest& request, const std::vector<std::shared_ptr<FrameCall>>& streams);

  const std::shared_ptr<PsClientShared> shared_;
  const PsAddress address_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;

  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t session_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<FrameCall>> streams_ ABSL_GUARDED_BY(mutex_);
  size_t connected_count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t live_count_ ABSL_GUARDED_BY(mutex_) = 0;
  // All streams are there and none has ended.
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_connected_ ABSL_GUARDED_BY(mutex_);
  absl::Duration restart_delay_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<RequestKey, std::shared_ptr<PsRequest>> outstanding_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lagrange

#endif  // WORKER_PS_PEER_H_

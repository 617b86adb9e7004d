// The client's end of one stream of frames: writes from a queue, reads one at a time.
//
// For PsClient, which says through the handlers what a frame means and what an end entails. Thread-safe. Owns itself
// between Prepare and OnDone. Waits for a server that isn't there yet; ends by Cancel, or when the peer or the
// connection does.

#ifndef WORKER_FRAME_CALL_H_
#define WORKER_FRAME_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lagrange {

class FrameCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                        public std::enable_shared_from_this<FrameCall> {
 public:
  struct Handlers {
    // The server has taken the stream.
    std::function<void()> on_connected;
    // False ends the stream. Called by one thread at a time.
    std::function<bool(const grpc::ByteBuffer& frame)> on_frame;
    // The stream has ended; once.
    std::function<void()> on_done;
    // gRPC, and what it called here, hold nothing any more: neither these handlers nor the channel. Last of all, once.
    std::function<void()> on_gone;
  };

  // First of all, and then Start, even after a Cancel: each call ends with on_done. `stub` outlives the call.
  void Prepare(grpc::GenericStub* stub, const std::string& session_key, Handlers handlers);
  void Start();
  // Dropped when the stream has ended.
  void Enqueue(std::vector<grpc::ByteBuffer> frames);
  void Cancel();

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  bool TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartNext();

  grpc::ClientContext context_;
  Handlers handlers_;
  std::shared_ptr<FrameCall> self_;
  grpc::ByteBuffer incoming_;
  // Of the write in progress: belongs to whoever set writing_.
  grpc::ByteBuffer outgoing_;
  bool more_follows_ = false;

  // A leaf: nothing is locked under it.
  absl::Mutex mutex_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lagrange

#endif  // WORKER_FRAME_CALL_H_

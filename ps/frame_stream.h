// One server stream of frames: reads one at a time, writes from a queue, ends exactly once.
//
// For DataPlaneServer, which says through the two functions what a frame means and what an end entails. Thread-safe.
// Owns itself between Start and gRPC's OnDone. gRPC allows no operation once Finish is called, and no two writes at
// once: everything that runs or is being started counts as busy, and Finish waits until nothing is.

#ifndef PS_FRAME_STREAM_H_
#define PS_FRAME_STREAM_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/byte_buffer.h>

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace lagrange {

class FrameStream final : public grpc::ServerGenericBidiReactor, public std::enable_shared_from_this<FrameStream> {
 public:
  struct Handlers {
    // One frame; an error ends the stream with it. Called by one thread at a time.
    std::function<absl::Status(const grpc::ByteBuffer& frame)> on_frame;
    // Nothing more will be read or written. Possibly more than once.
    std::function<void()> on_end;
    // gRPC has let go of the stream; last of all.
    std::function<void()> on_done;
  };

  explicit FrameStream(grpc::GenericCallbackServerContext* context) : context_(context) {}

  // Once, before gRPC gets the reactor.
  void Start(Handlers handlers);
  // One reply; dropped when the stream has ended.
  void Enqueue(std::vector<grpc::ByteBuffer> frames);
  // Replies that haven't been handed to gRPC whole.
  int queued_replies();
  // What is queued is dropped.
  void Close(const absl::Status& status);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct QueuedFrame {
    grpc::ByteBuffer frame;
    bool ends_reply = false;
  };

  // Takes the next frame of the queue, or false. The caller then calls StartNext without the lock.
  bool TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartNext();
  // Ends one piece of business, and the stream when it was the last.
  void EndBusy();
  bool TakeFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::GenericCallbackServerContext* const context_;
  Handlers handlers_;
  std::shared_ptr<FrameStream> self_;
  grpc::ByteBuffer incoming_;
  // Of the write in progress: belongs to whoever set writing_.
  QueuedFrame outgoing_;
  bool more_follows_ = false;

  // A leaf: nothing is locked under it.
  absl::Mutex mutex_;
  std::deque<QueuedFrame> queue_ ABSL_GUARDED_BY(mutex_);
  int queued_replies_ ABSL_GUARDED_BY(mutex_) = 0;
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status final_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lagrange

#endif  // PS_FRAME_STREAM_H_

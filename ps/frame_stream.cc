#include "ps/frame_stream.h"

#include <string>
#include <utility>

namespace lagrange {
namespace {

// Shorter frames wait in gRPC's buffer for the one that follows them: one system call for many.
constexpr size_t kGatherBelowBytes = 256 << 10;

}  // namespace

void FrameStream::Start(Handlers handlers) {
  handlers_ = std::move(handlers);
  self_ = shared_from_this();
  StartSendInitialMetadata();
  StartRead(&incoming_);
}

void FrameStream::Enqueue(std::vector<grpc::ByteBuffer> frames) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || frames.empty()) return;
    // Swapped, for a ByteBuffer has no move: its copies allocate.
    for (grpc::ByteBuffer& frame : frames) queue_.emplace_back().frame.Swap(&frame);
    queue_.back().ends_reply = true;
    ++queued_replies_;
    if (writing_) return;
    writing_ = true;
    ++busy_;
    TakeNext();
  }
  StartNext();
}

int FrameStream::queued_replies() {
  absl::MutexLock lock(&mutex_);
  return queued_replies_;
}

bool FrameStream::TakeNext() {
  if (queue_.empty()) return false;
  outgoing_.frame.Swap(&queue_.front().frame);
  outgoing_.ends_reply = queue_.front().ends_reply;
  queue_.pop_front();
  more_follows_ = !queue_.empty();
  return true;
}

void FrameStream::StartNext() {
  grpc::WriteOptions options;
  if (more_follows_ && outgoing_.frame.Length() < kGatherBelowBytes) options.set_buffer_hint();
  StartWrite(&outgoing_.frame, options);
}

void FrameStream::OnWriteDone(bool ok) {
  bool next = false;
  {
    absl::MutexLock lock(&mutex_);
    if (outgoing_.ends_reply) --queued_replies_;
    outgoing_ = QueuedFrame();
    next = ok && !closed_ && TakeNext();
    if (!next) writing_ = false;
  }
  if (next) {
    StartNext();
    return;
  }
  if (!ok) {
    handlers_.on_end();
    Close(absl::CancelledError("the peer is gone"));
  }
  EndBusy();
}

void FrameStream::OnReadDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    ++busy_;
  }
  const absl::Status status = ok ? handlers_.on_frame(incoming_) : absl::OkStatus();
  incoming_.Clear();
  if (!ok || !status.ok()) {
    Close(status);
    handlers_.on_end();
  }
  bool closed;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
  }
  if (!closed) StartRead(&incoming_);
  EndBusy();
}

void FrameStream::OnCancel() {
  Close(absl::CancelledError("the peer is gone"));
  handlers_.on_end();
}

void FrameStream::Close(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    final_status_ = status;
    queue_.clear();
    // A write that the peer doesn't take would keep the stream for ever. Under the lock, because Finish, which needs
    // it, frees the context.
    if (writing_) context_->TryCancel();
    ++busy_;
  }
  EndBusy();
}

void FrameStream::EndBusy() {
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    --busy_;
    if (!TakeFinish()) return;
    status = grpc::Status(static_cast<grpc::StatusCode>(final_status_.code()), std::string(final_status_.message()));
  }
  Finish(status);
}

bool FrameStream::TakeFinish() {
  if (!closed_ || busy_ > 0 || finished_) return false;
  finished_ = true;
  return true;
}

void FrameStream::OnDone() {
  const std::shared_ptr<FrameStream> self = std::move(self_);
  handlers_.on_end();
  handlers_.on_done();
  // They hold the session, which holds this.
  handlers_ = Handlers();
}

}  // namespace lagrange

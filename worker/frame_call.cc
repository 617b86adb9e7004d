#include "worker/frame_call.h"

#include <utility>

#include "proto/frame.h"

namespace lagrange {
namespace {

// Shorter frames wait in gRPC's buffer for the one that follows them: one system call for many.
constexpr size_t kGatherBelowBytes = 256 << 10;

}  // namespace

void FrameCall::Prepare(grpc::GenericStub* stub, const std::string& session_key, Handlers handlers) {
  handlers_ = std::move(handlers);
  self_ = shared_from_this();
  context_.set_wait_for_ready(true);
  context_.AddMetadata(kSessionMetadataKey, session_key);
  stub->PrepareBidiStreamingCall(&context_, kDataPlaneMethod, grpc::StubOptions(), this);
  // Given back by Cancel: until then writes may start outside of gRPC's callbacks.
  AddHold();
}

void FrameCall::Start() {
  StartRead(&incoming_);
  StartCall();
}

void FrameCall::Enqueue(std::vector<grpc::ByteBuffer> frames) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || frames.empty()) return;
    // Swapped, for a ByteBuffer has no move: its copies allocate.
    for (grpc::ByteBuffer& frame : frames) queue_.emplace_back().Swap(&frame);
    if (writing_) return;
    writing_ = true;
    TakeNext();
    // Cancel may give the first hold back before the write has begun.
    AddHold();
  }
  StartNext();
  RemoveHold();
}

bool FrameCall::TakeNext() {
  if (queue_.empty()) return false;
  outgoing_.Swap(&queue_.front());
  queue_.pop_front();
  more_follows_ = !queue_.empty();
  return true;
}

void FrameCall::StartNext() {
  grpc::WriteOptions options;
  if (more_follows_ && outgoing_.Length() < kGatherBelowBytes) options.set_buffer_hint();
  StartWrite(&outgoing_, options);
}

void FrameCall::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
    queue_.clear();
    context_.TryCancel();
  }
  RemoveHold();
}

void FrameCall::OnReadInitialMetadataDone(bool ok) {
  if (ok) handlers_.on_connected();
}

void FrameCall::OnReadDone(bool ok) {
  if (!ok || !handlers_.on_frame(incoming_)) {
    Cancel();
    return;
  }
  incoming_.Clear();
  StartRead(&incoming_);
}

void FrameCall::OnWriteDone(bool ok) {
  bool next;
  {
    absl::MutexLock lock(&mutex_);
    outgoing_.Clear();
    next = ok && !ended_ && TakeNext();
    if (!next) writing_ = false;
  }
  if (next) StartNext();
  if (!ok) Cancel();
}

void FrameCall::OnDone(const grpc::Status& status) {
  // Slices over the caller's memory go before the caller hears of the end.
  outgoing_.Clear();
  Handlers handlers = std::move(handlers_);
  handlers.on_done();
  const std::function<void()> on_gone = std::move(handlers.on_gone);
  handlers = Handlers();
  // May destroy this.
  std::shared_ptr<FrameCall>(std::move(self_)).reset();
  on_gone();
}

}  // namespace lagrange

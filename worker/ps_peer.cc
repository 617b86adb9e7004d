#include "worker/ps_peer.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/channel_arguments.h"

namespace lagrange {
namespace {

// A ps that takes streams and drops them at once is asked again in these intervals; one that is down costs nothing,
// since gRPC tries to connect by itself.
constexpr absl::Duration kFirstRestartDelay = absl::Milliseconds(20);
constexpr absl::Duration kMaxRestartDelay = absl::Seconds(1);
constexpr int kMaxChannelsPerPs = 8;

// What a push that is given up may take to leave before its session is ended.
constexpr absl::Duration kForgetPatience = absl::Seconds(1);

int64_t CountOf(const ShardPlacement& placement) { return placement.element_end() - placement.element_begin(); }
int64_t BytesOf(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

}  // namespace

std::shared_ptr<const MapLayout> LayOut(const ShardMap& map) {
  auto layout = std::make_shared<MapLayout>();
  layout->map = map;
  for (const PsAddress& ps : map.ps()) layout->parts[ps.ps_index()];
  for (const ShardPlacement& placement : map.shards()) {
    MapLayout::Part& part = layout->parts[placement.ps_index()];
    layout->positions.push_back(part.shards.size());
    part.shards.push_back(placement.shard());
    part.total_bytes += BytesOf(CountOf(placement));
  }
  return layout;
}

PsPeer::PsPeer(std::shared_ptr<PsClientShared> shared, const PsAddress& address, bool replaces_another)
    : shared_(std::move(shared)),
      address_(address),
      was_connected_(replaces_another),
      restart_delay_(kFirstRestartDelay) {
  const int channels = std::clamp(shared_->options.channels_per_ps, 1, kMaxChannelsPerPs);
  for (int i = 0; i < channels; ++i) {
    stubs_.push_back(std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address.address(), grpc::InsecureChannelCredentials(), ClientChannelArguments())));
  }
}

// ---- connection ----------------------------------------------------------------------------------------------------

void PsPeer::Connect() {
  uint64_t session;
  {
    absl::MutexLock lock(&mutex_);
    session = ++session_;
    connected_count_ = 0;
    live_count_ = stubs_.size();
  }
  const std::string key = absl::StrCat(shared_->session_prefix, "-", ++shared_->sessions);
  std::vector<std::shared_ptr<FrameCall>> streams;
  for (const auto& stub : stubs_) {
    shared_->AddLive();
    FrameCall::Handlers handlers;
    auto self = shared_from_this();
    handlers.on_connected = [self, session] { self->OnConnected(session); };
    handlers.on_frame = [self](const grpc::ByteBuffer& frame) { return self->OnFrame(frame); };
    handlers.on_done = [self] { self->OnStreamDone(); };
    handlers.on_gone = [shared = shared_] { shared->RemoveLive(); };
    streams.push_back(std::make_shared<FrameCall>());
    streams.back()->Prepare(stub.get(), key, std::move(handlers));
  }
  bool closed;
  {
    absl::MutexLock lock(&mutex_);
    closed = closed_;
    streams_ = streams;
  }
  for (const auto& stream : streams) {
    if (closed) stream->Cancel();
    stream->Start();
  }
}

void PsPeer::Close() {
  std::vector<std::shared_ptr<FrameCall>> streams;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    connected_ = false;
    outstanding_.clear();
    streams.swap(streams_);
  }
  for (const auto& stream : streams) stream->Cancel();
}

void PsPeer::OnConnected(uint64_t session) {
  std::vector<std::shared_ptr<PsRequest>> waiting;
  std::vector<std::shared_ptr<FrameCall>> streams;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || session != session_ || live_count_ < stubs_.size() || ++connected_count_ < stubs_.size()) return;
    connected_ = true;
    if (was_connected_) {
      outstanding_.clear();
    } else {
      // Nothing has been lost yet: what was asked meanwhile goes out now.
      was_connected_ = true;
      streams = streams_;
      for (const auto& [key, request] : outstanding_) {
        request->attempt = ++last_attempt_;
        waiting.push_back(request);
      }
    }
  }
  if (streams.empty()) {
    if (shared_->on_reconnected) shared_->on_reconnected(address_.ps_index());
    return;
  }
  for (const auto& request : waiting) Transmit(request, streams);
}

void PsPeer::OnStreamDone() {
  std::vector<std::shared_ptr<FrameCall>> streams;
  {
    absl::MutexLock lock(&mutex_);
    connected_ = false;
    --live_count_;
    streams = streams_;
    if (live_count_ == 0 && !closed_) {
      streams_.clear();
      std::weak_ptr<PsPeer> peer = weak_from_this();
      shared_->calls.Run(restart_delay_, [peer] {
        if (auto self = peer.lock()) self->Connect();
      });
      restart_delay_ = std::min(restart_delay_ * 2, kMaxRestartDelay);
    }
  }
  // A session lives and dies as one.
  for (const auto& stream : streams) stream->Cancel();
}

// ---- requests ------------------------------------------------------------------------------------------------------

void PsPeer::Send(std::shared_ptr<PsRequest> request) {
  std::vector<std::shared_ptr<FrameCall>> streams;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    std::shared_ptr<PsRequest>& place = outstanding_[KeyOf(request->kind, request->id)];
    if (place != nullptr) {
      // The former sending is still on its way, and cannot be lost while the connection lasts: a second behind it would
      // only fill memory.
      if (connected_ && place->hold != nullptr && place->hold.use_count() > 1) return;
      // The replaced one's memory is the caller's again.
      const std::shared_ptr<PsRequest> replaced = place;
      mutex_.Await(absl::Condition(
          +[](int* writers) { return *writers == 0; }, &replaced->writers));
    }
    // Await let go of the lock: the place may have moved, the peer been closed.
    if (closed_) return;
    outstanding_[KeyOf(request->kind, request->id)] = request;
    if (!connected_) return;
    request->attempt = ++last_attempt_;
    streams = streams_;
  }
  Transmit(request, streams);
}

void PsPeer::Transmit(const std::shared_ptr<PsRequest>& request,
                      const std::vector<std::shared_ptr<FrameCall>>& streams) {
  if (request->kind == PUSH) {
    TransmitPush(*request, streams);
    return;
  }
  FrameBuilder frame;
  frame.header.set_kind(PULL);
  frame.header.set_request_id(request->id);
  frame.header.set_attempt(request->attempt);
  *frame.header.mutable_request() = request->header;
  streams[0]->Enqueue({frame.Finish()});
}

void PsPeer::TransmitPush(const PsRequest& request, const std::vector<std::shared_ptr<FrameCall>>& streams) {
  int64_t total_bytes = 0;
  for (uint32_t shard : request.shards) {
    total_bytes += BytesOf(CountOf(request.placement(shard)));
  }
  // One frame's worth isn't worth a second stream.
  const size_t stream_count = total_bytes > shared_->options.chunk_bytes ? streams.size() : 1;
  std::vector<FrameCutter> cutters(stream_count, FrameCutter(shared_->options.chunk_bytes));
  std::vector<int64_t> bytes(stream_count, 0);
  std::vector<std::vector<uint32_t>> shards(stream_count);
  for (uint32_t shard : request.shards) {
    // Not by shard number: a ps may have every second one.
    const size_t stream = static_cast<size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    const int64_t count = CountOf(request.placement(shard));
    cutters[stream].Add(
        shard, (*request.memory.versions)[shard], absl::MakeConstSpan(request.begin(shard), static_cast<size_t>(count)),
        [&request](const float* data, size_t slice_bytes) { return HoldingSlice(data, slice_bytes, request.hold); });
    bytes[stream] += BytesOf(count);
    shards[stream].push_back(shard);
  }
  for (size_t stream = 0; stream < stream_count; ++stream) {
    std::vector<FrameBuilder> frames = cutters[stream].Take();
    FrameHeader& first = frames[0].header;
    *first.mutable_request() = request.header;
    first.mutable_shards()->Assign(shards[stream].begin(), shards[stream].end());
    first.set_frame_count(static_cast<uint32_t>(frames.size()));
    first.set_stream_count(static_cast<uint32_t>(stream_count));
    std::vector<grpc::ByteBuffer> outgoing;
    for (FrameBuilder& frame : frames) {
      frame.header.set_kind(PUSH);
      frame.header.set_request_id(request.id);
      frame.header.set_attempt(request.attempt);
      outgoing.push_back(frame.Finish());
    }
    streams[stream]->Enqueue(std::move(outgoing));
  }
}

void PsPeer::Forget(uint64_t request_id) {
  std::shared_ptr<PsRequest> push;
  {
    absl::MutexLock lock(&mutex_);
    const auto pull = outstanding_.find(KeyOf(PULL, request_id));
    if (pull != outstanding_.end()) {
      const std::shared_ptr<PsRequest> forgotten = std::move(pull->second);
      outstanding_.erase(pull);
      mutex_.Await(absl::Condition(
          +[](int* writers) { return *writers == 0; }, &forgotten->writers));
    }
    const auto found = outstanding_.find(KeyOf(PUSH, request_id));
    if (found == outstanding_.end()) return;
    push = std::move(found->second);
    outstanding_.erase(found);
  }
  ForgetPush(std::move(push));
}

void PsPeer::ForgetPush(std::shared_ptr<PsRequest> push) {
  const std::shared_ptr<absl::Notification> freed = push->hold->freed();
  push.reset();
  if (freed->WaitForNotificationWithTimeout(kForgetPatience)) return;
  // The ps doesn't read: what is queued for it can only be dropped with the streams.
  std::vector<std::shared_ptr<FrameCall>> streams;
  {
    absl::MutexLock lock(&mutex_);
    streams = streams_;
  }
  for (const auto& stream : streams) stream->Cancel();
  freed->WaitForNotification();
}

// ---- answers -------------------------------------------------------------------------------------------------------

bool PsPeer::OnFrame(const grpc::ByteBuffer& buffer) {
  absl::StatusOr<FrameReader> frame = FrameReader::Parse(buffer);
  if (!frame.ok()) return false;
  {
    absl::MutexLock lock(&mutex_);
    restart_delay_ = kFirstRestartDelay;
  }
  switch (frame->header().kind()) {
    case PULL_REPLY:
      return OnPullReply(&*frame);
    case PUSH_REPLY:
      OnPushReply(frame->header());
      return true;
    default:
      return false;
  }
}

bool PsPeer::OnPullReply(FrameReader* frame) {
  const FrameHeader& header = frame->header();
  std::shared_ptr<PsRequest> request;
  bool copies = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = outstanding_.find(KeyOf(PULL, header.request_id()));
    // The answer to a sending that was repeated, or to a request that has been answered.
    if (found == outstanding_.end() || found->second->attempt != header.attempt()) return true;
    request = found->second;
    copies = CheckPullReply(header, request.get());
    if (copies) ++request->writers;
  }
  if (copies) {
    for (const Segment& segment : header.segments()) {
      frame->Read(request->begin(segment.shard()) + segment.offset(),
                  static_cast<size_t>(segment.count()) * sizeof(float));
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    if (copies) --request->writers;
    for (const Segment& segment : header.segments()) {
      if (!copies) break;
      request->received_bytes += BytesOf(segment.count());
      (*request->memory.versions)[segment.shard()] = segment.version();
    }
    const int64_t expected_bytes = request->layout->parts.at(address_.ps_index()).total_bytes;
    const bool whole = request->reply.code() != OK || request->received_bytes == expected_bytes;
    const auto found = outstanding_.find(KeyOf(PULL, request->id));
    if (!whole || request->writers > 0 || found == outstanding_.end() || found->second != request) return true;
    outstanding_.erase(found);
  }
  Answer(request->id, PULL_REPLY, request->reply);
  return true;
}

bool PsPeer::CheckPullReply(const FrameHeader& header, PsRequest* request) {
  const MapLayout::Part& part = request->layout->parts.at(address_.ps_index());
  const auto refuse = [this, request](const std::string& what) {
    request->reply.set_code(REFUSED);
    request->reply.set_message(absl::StrCat("ps ", address_.ps_index(), " answered a pull wrongly: ", what));
    return false;
  };
  // A stream's first frame of the answer.
  if (header.has_reply()) {
    if (!request->replied) request->reply = header.reply();
    request->replied = true;
    if (request->reply.code() == OK && header.reply().total_bytes() != part.total_bytes) {
      return refuse(absl::StrCat(header.reply().total_bytes(), " bytes; expected ", part.total_bytes));
    }
  }
  if (!request->replied) return refuse("bytes before the header");
  if (request->reply.code() != OK) return false;
  request->received_counts.resize(part.shards.size(), 0);
  for (const Segment& segment : header.segments()) {
    if (segment.shard() >= request->layout->positions.size() ||
        request->placement(segment.shard()).ps_index() != address_.ps_index()) {
      return refuse(absl::StrCat("shard ", segment.shard(), " isn't there by map ", request->layout->map.version()));
    }
    const int64_t count = CountOf(request->placement(segment.shard()));
    int64_t& received_count = request->received_counts[request->layout->positions[segment.shard()]];
    if (segment.offset() > count || segment.count() > count - segment.offset() ||
        segment.count() > count - received_count) {
      return refuse(absl::StrCat("elements ", segment.offset(), " and ", segment.count(), " following of shard ",
                                 segment.shard(), ", which has ", count));
    }
    received_count += segment.count();
  }
  return true;
}

void PsPeer::OnPushReply(const FrameHeader& header) {
  std::shared_ptr<PsRequest> request;
  {
    absl::MutexLock lock(&mutex_);
    // Whichever sending it answers, it answers the push.
    const auto found = outstanding_.find(KeyOf(PUSH, header.request_id()));
    if (found == outstanding_.end()) return;
    request = std::move(found->second);
    outstanding_.erase(found);
  }
  if (request->hold.use_count() > 1) {
    // The caller may write to its gradients once it has the answer; gRPC hasn't let go of them yet.
    request->hold->set_when_free(
        [self = shared_from_this(), id = request->id, reply = header.reply()] { self->Answer(id, PUSH_REPLY, reply); });
    return;
  }
  std::atomic_thread_fence(std::memory_order_acquire);
  Answer(request->id, PUSH_REPLY, header.reply());
}

void PsPeer::Answer(uint64_t request_id, FrameKind kind, const ReplyHeader& reply) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
  }
  shared_->on_reply(address_.ps_index(), request_id, kind, reply);
}

}  // namespace lagrange

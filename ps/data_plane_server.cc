#include "ps/data_plane_server.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/status.h"
#include "proto/frame.h"
#include "ps/frame_stream.h"
#include "ps/push_parts.h"

namespace lagrange {
namespace {

// A worker's client has two; more would only divide the same cores.
constexpr size_t kMaxStreamsPerSession = 8;
// 1,024 workers and the evaluators among them, twice while they reconnect.
constexpr size_t kMaxSessions = 4096;
// A worker has a pull, a prefetched one and a push under way; benchmarks and tests have more.
constexpr size_t kMaxRequestsPerSession = 256;
constexpr size_t kMaxOpenPushesPerSession = 32;
constexpr int kMaxQueuedReplies = 256;
constexpr uint32_t kMaxFramesPerPush = 1 << 20;
constexpr size_t kMaxSessionKeyBytes = 64;

// A push between its first frame and its last, on all its streams. Guarded by its session's lock.
struct OpenPush {
  RequestHeader request;
  uint64_t request_id = 0;
  RequestToken token = 0;
  uint32_t stream_count = 0;
  uint32_t streams_begun = 0;
  uint32_t streams_ended = 0;
  bool refused = false;
  std::vector<ShardResult> results;
};

struct Session {
  explicit Session(std::string session_key) : key(std::move(session_key)) {}

  const std::string key;
  absl::Mutex mutex;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::shared_ptr<FrameStream>> streams ABSL_GUARDED_BY(mutex);
  // By attempt.
  absl::flat_hash_map<uint64_t, std::shared_ptr<OpenPush>> pushes ABSL_GUARDED_BY(mutex);
};

// Where an answer goes.
struct ReturnAddress {
  std::shared_ptr<Session> session;
  std::shared_ptr<FrameStream> stream;
  FrameKind kind = FRAME_KIND_UNSPECIFIED;
  uint64_t incarnation = 0;
  uint64_t request_id = 0;
  uint64_t attempt = 0;
};

// Numbers the requests that the engine hasn't answered yet. A repeat gets the number of the request that it repeats, so
// that whichever of the two the engine keeps, the answer finds the latest attempt. Thread-safe.
class TokenTable {
 public:
  absl::StatusOr<RequestToken> Issue(ReturnAddress address) {
    absl::MutexLock lock(&mutex_);
    auto& requests = sessions_[address.session.get()];
    const RequestKey key{address.kind, address.incarnation, address.request_id};
    const auto found = requests.find(key);
    if (found != requests.end()) {
      addresses_[found->second] = std::move(address);
      return found->second;
    }
    if (requests.size() >= kMaxRequestsPerSession) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxRequestsPerSession, " requests without an answer"));
    }
    const RequestToken token = ++last_token_;
    requests[key] = token;
    addresses_[token] = std::move(address);
    return token;
  }

  // False: answered before, or its session has ended.
  bool Take(RequestToken token, ReturnAddress* address) {
    absl::MutexLock lock(&mutex_);
    const auto found = addresses_.find(token);
    if (found == addresses_.end()) return false;
    *address = std::move(found->second);
    addresses_.erase(found);
    sessions_[address->session.get()].erase({address->kind, address->incarnation, address->request_id});
    return true;
  }

  std::vector<RequestToken> DropSession(const Session* session) {
    absl::MutexLock lock(&mutex_);
    std::vector<RequestToken> tokens;
    for (const auto& [key, token] : sessions_[session]) {
      tokens.push_back(token);
      addresses_.erase(token);
    }
    sessions_.erase(session);
    return tokens;
  }

 private:
  using RequestKey = std::tuple<FrameKind, uint64_t, uint64_t>;

  absl::Mutex mutex_;
  RequestToken last_token_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<RequestToken, ReturnAddress> addresses_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Session*, std::map<RequestKey, RequestToken>> sessions_ ABSL_GUARDED_BY(mutex_);
};

// What an error of ApplyPart means to the worker.
ReplyCode CodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return REFUSED;
    case absl::StatusCode::kAborted:
      return STALE_GENERATION;
    case absl::StatusCode::kFailedPrecondition:
      return FENCED;
    case absl::StatusCode::kNotFound:
      return STALE_MAP;
    default:
      return UNAVAILABLE;
  }
}

}  // namespace

class DataPlaneServer::Impl final : public grpc::CallbackGenericService {
 public:
  Impl(Engine* engine, const DataPlaneServerOptions& options) : engine_(engine), options_(options) {}

  ~Impl() override {
    absl::MutexLock lock(&mutex_);
    CHECK(stream_count_ == 0);
  }

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;
  void Deliver(PsEffects effects);
  void CloseStreams();

 private:
  // One stream's place in its session; used by the stream's reading thread alone.
  struct Reading {
    std::shared_ptr<Session> session;
    std::weak_ptr<FrameStream> stream;
    struct Push {
      std::shared_ptr<OpenPush> push;
      std::unique_ptr<PushParts> parts;
    };
    // By attempt.
    absl::flat_hash_map<uint64_t, Push> pushes;
  };

  absl::StatusOr<std::shared_ptr<Session>> Join(const grpc::GenericCallbackServerContext& context,
                                                const std::shared_ptr<FrameStream>& stream);
  void EndSession(Session* session);

  absl::Status TakeFrame(Reading* reading, const grpc::ByteBuffer& frame);
  absl::Status TakePull(const Reading& reading, const FrameHeader& header);
  absl::Status TakePush(Reading* reading, FrameReader* frame);
  // The push that a stream's first frame of it belongs to; `effects` get the engine's refusal.
  absl::StatusOr<std::shared_ptr<OpenPush>> JoinPush(const Reading& reading, const FrameHeader& header,
                                                     PsEffects* effects);
  void EndPushOnStream(Session* session, uint64_t attempt, OpenPush* push);
  void Refuse(Session* session, OpenPush* push, ReplyCode code, const std::string& message);
  absl::StatusOr<RequestToken> IssueToken(const Reading& reading, const FrameHeader& header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading.session->mutex);

  void SendPull(const ReturnAddress& address, PullAnswer answer);

  Engine* const engine_;
  const DataPlaneServerOptions options_;
  TokenTable tokens_;
  FloatBufferPool pool_;

  absl::Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  int stream_count_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t unnamed_sessions_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

// ---- streams and sessions ------------------------------------------------------------------------------------------

grpc::ServerGenericBidiReactor* DataPlaneServer::Impl::CreateReactor(grpc::GenericCallbackServerContext* context) {
  auto stream = std::make_shared<FrameStream>(context);
  auto reading = std::make_shared<Reading>();
  reading->stream = stream;
  absl::StatusOr<std::shared_ptr<Session>> session = Join(*context, stream);
  {
    absl::MutexLock lock(&mutex_);
    ++stream_count_;
  }
  FrameStream::Handlers handlers;
  handlers.on_done = [this] {
    absl::MutexLock lock(&mutex_);
    --stream_count_;
  };
  if (!session.ok()) {
    handlers.on_frame = [](const grpc::ByteBuffer&) { return absl::OkStatus(); };
    handlers.on_end = [] {};
    stream->Start(std::move(handlers));
    stream->Close(session.status());
    return stream.get();
  }
  reading->session = *session;
  handlers.on_frame = [this, reading](const grpc::ByteBuffer& frame) { return TakeFrame(reading.get(), frame); };
  handlers.on_end = [this, reading] { EndSession(reading->session.get()); };
  stream->Start(std::move(handlers));
  return stream.get();
}

absl::StatusOr<std::shared_ptr<Session>> DataPlaneServer::Impl::Join(const grpc::GenericCallbackServerContext& context,
                                                                     const std::shared_ptr<FrameStream>& stream) {
  if (context.method() != kDataPlaneMethod) {
    return absl::UnimplementedError(absl::StrCat("no method ", context.method(), " here"));
  }
  const auto named = context.client_metadata().find(kSessionMetadataKey);
  std::string key;
  if (named != context.client_metadata().end()) key.assign(named->second.data(), named->second.size());
  if (key.size() > kMaxSessionKeyBytes) return absl::InvalidArgumentError("the session's name is too long");

  absl::MutexLock lock(&mutex_);
  if (closing_) return absl::UnavailableError("this ps is shutting down");
  // A peer that names none has a session for each stream; '#' begins no name of a client.
  if (key.empty()) key = absl::StrCat("#", ++unnamed_sessions_);
  std::shared_ptr<Session>& session = sessions_[key];
  if (session == nullptr) {
    if (sessions_.size() > kMaxSessions) {
      sessions_.erase(key);
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxSessions, " sessions"));
    }
    session = std::make_shared<Session>(key);
  }
  absl::MutexLock session_lock(&session->mutex);
  if (session->streams.size() >= kMaxStreamsPerSession) {
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxStreamsPerSession, " streams of a session"));
  }
  session->streams.push_back(stream);
  return session;
}

void DataPlaneServer::Impl::EndSession(Session* session) {
  std::vector<std::shared_ptr<FrameStream>> streams;
  {
    absl::MutexLock lock(&mutex_);
    absl::MutexLock session_lock(&session->mutex);
    if (session->ended) return;
    session->ended = true;
    streams.swap(session->streams);
    session->pushes.clear();
    const auto found = sessions_.find(session->key);
    if (found != sessions_.end() && found->second.get() == session) sessions_.erase(found);
  }
  engine_->Forget(tokens_.DropSession(session));
  for (const auto& stream : streams) stream->Close(absl::AbortedError("a stream of this session has ended"));
}

void DataPlaneServer::Impl::CloseStreams() {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    absl::MutexLock lock(&mutex_);
    closing_ = true;
    for (const auto& [key, session] : sessions_) sessions.push_back(session);
  }
  for (const auto& session : sessions) EndSession(session.get());
}

// ---- frames in -----------------------------------------------------------------------------------------------------

absl::Status DataPlaneServer::Impl::TakeFrame(Reading* reading, const grpc::ByteBuffer& frame) {
  ASSIGN_OR_RETURN(FrameReader reader, FrameReader::Parse(frame));
  switch (reader.header().kind()) {
    case PULL:
      return TakePull(*reading, reader.header());
    case PUSH:
      return TakePush(reading, &reader);
    default:
      return absl::InvalidArgumentError(absl::StrCat("a frame of kind ", reader.header().kind(), " is no request"));
  }
}

absl::StatusOr<RequestToken> DataPlaneServer::Impl::IssueToken(const Reading& reading, const FrameHeader& header) {
  // Once ended, the session's tokens have been dropped, and one more would stay for ever.
  if (reading.session->ended) return absl::AbortedError("the session has ended");
  ReturnAddress address;
  address.session = reading.session;
  address.stream = reading.stream.lock();
  address.kind = header.kind();
  address.incarnation = header.request().incarnation();
  address.request_id = header.request_id();
  address.attempt = header.attempt();
  // Answers that aren't read pin versions of the parameters, each a copy.
  if (address.stream == nullptr || address.stream->queued_replies() >= kMaxQueuedReplies) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kMaxQueuedReplies, " answers that the peer doesn't read"));
  }
  return tokens_.Issue(std::move(address));
}

absl::Status DataPlaneServer::Impl::TakePull(const Reading& reading, const FrameHeader& header) {
  if (header.segments_size() > 0) return absl::InvalidArgumentError("a pull carries segments");
  RequestToken token = 0;
  {
    absl::MutexLock lock(&reading.session->mutex);
    ASSIGN_OR_RETURN(token, IssueToken(reading, header));
  }
  PsEffects effects;
  engine_->Pull(header.request(), header.request_id(), header.shards(), token, &effects);
  Deliver(std::move(effects));
  return absl::OkStatus();
}

absl::Status DataPlaneServer::Impl::TakePush(Reading* reading, FrameReader* frame) {
  const FrameHeader& header = frame->header();
  const uint64_t attempt = header.attempt();
  auto found = reading->pushes.find(attempt);
  if (found == reading->pushes.end()) {
    PsEffects effects;
    absl::StatusOr<std::shared_ptr<OpenPush>> joined = JoinPush(*reading, header, &effects);
    RETURN_IF_ERROR(joined.status());
    Deliver(std::move(effects));
    Reading::Push push{*std::move(joined), std::make_unique<PushParts>(header, &pool_)};
    found = reading->pushes.emplace(attempt, std::move(push)).first;
  }
  Session* const session = reading->session.get();
  OpenPush* const push = found->second.push.get();
  {
    absl::MutexLock lock(&session->mutex);
    if (push->refused) found->second.parts->Drop();
  }
  bool engine_refused = false;
  const absl::Status status = found->second.parts->Take(
      frame, [this](uint32_t shard) { return engine_->ElementCountOf(shard); },
      [&](uint32_t shard, uint64_t version, absl::Span<const float> gradient) {
        absl::StatusOr<ShardResult> result = engine_->ApplyPart(push->request, shard, version, gradient);
        if (!result.ok()) {
          engine_refused = true;
          return result.status();
        }
        absl::MutexLock lock(&session->mutex);
        push->results.push_back(*std::move(result));
        return absl::OkStatus();
      });
  if (!status.ok()) {
    const std::string message(status.message());
    const ReplyCode code = CodeOf(status);
    if (engine_refused && code == REFUSED && options_.on_bad_push) options_.on_bad_push(push->request, message);
    Refuse(session, push, code, message);
  }
  if (found->second.parts->last_frame_taken()) {
    EndPushOnStream(session, attempt, push);
    reading->pushes.erase(attempt);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<OpenPush>> DataPlaneServer::Impl::JoinPush(const Reading& reading,
                                                                          const FrameHeader& header,
                                                                          PsEffects* effects) {
  if (header.frame_count() < 1 || header.frame_count() > kMaxFramesPerPush || header.stream_count() < 1 ||
      header.stream_count() > kMaxStreamsPerSession) {
    return absl::InvalidArgumentError(absl::StrCat("the first frame of push ", header.request_id(), " says ",
                                                   header.frame_count(), " frames and ", header.stream_count(),
                                                   " streams"));
  }
  absl::MutexLock lock(&reading.session->mutex);
  std::shared_ptr<OpenPush>& push = reading.session->pushes[header.attempt()];
  if (push != nullptr) {
    if (push->stream_count != header.stream_count() || push->request_id != header.request_id() ||
        push->streams_begun == push->stream_count) {
      return absl::InvalidArgumentError(
          absl::StrCat("push ", header.request_id(), " begins otherwise on another of its streams"));
    }
    ++push->streams_begun;
    return push;
  }
  if (reading.session->pushes.size() > kMaxOpenPushesPerSession) {
    reading.session->pushes.erase(header.attempt());
    return absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxOpenPushesPerSession, " open pushes"));
  }
  absl::StatusOr<RequestToken> token = IssueToken(reading, header);
  if (!token.ok()) {
    reading.session->pushes.erase(header.attempt());
    return token.status();
  }
  push = std::make_shared<OpenPush>();
  push->request = header.request();
  push->request_id = header.request_id();
  push->token = *token;
  push->stream_count = header.stream_count();
  push->streams_begun = 1;
  // Under the lock: no other stream's part may be applied before it.
  push->refused = !engine_->BeginPush(push->request, push->request_id, push->token, effects);
  return push;
}

void DataPlaneServer::Impl::EndPushOnStream(Session* session, uint64_t attempt, OpenPush* push) {
  {
    absl::MutexLock lock(&session->mutex);
    if (++push->streams_ended < push->stream_count) return;
    session->pushes.erase(attempt);
    if (push->refused) return;
  }
  PsEffects effects;
  engine_->EndPush(push->request, push->request_id, push->token, std::move(push->results), &effects);
  Deliver(std::move(effects));
}

void DataPlaneServer::Impl::Refuse(Session* session, OpenPush* push, ReplyCode code, const std::string& message) {
  {
    absl::MutexLock lock(&session->mutex);
    if (push->refused) return;
    push->refused = true;
  }
  PushAnswer answer;
  answer.token = push->token;
  answer.header.set_code(code);
  answer.header.set_message(message);
  answer.header.set_term(push->request.term());
  answer.header.set_generation(push->request.generation());
  answer.header.set_map_version(push->request.map_version());
  PsEffects effects;
  effects.pushes.push_back(std::move(answer));
  Deliver(std::move(effects));
}

// ---- frames out ----------------------------------------------------------------------------------------------------

void DataPlaneServer::Impl::Deliver(PsEffects effects) {
  ReturnAddress address;
  for (PullAnswer& answer : effects.pulls) {
    if (tokens_.Take(answer.token, &address)) SendPull(address, std::move(answer));
  }
  for (PushAnswer& answer : effects.pushes) {
    if (!tokens_.Take(answer.token, &address)) continue;
    FrameBuilder frame;
    frame.header.set_kind(PUSH_REPLY);
    frame.header.set_request_id(address.request_id);
    frame.header.set_attempt(address.attempt);
    *frame.header.mutable_reply() = std::move(answer.header);
    address.stream->Enqueue({frame.Finish()});
  }
}

void DataPlaneServer::Impl::SendPull(const ReturnAddress& address, PullAnswer answer) {
  FrameCutter cutter(options_.chunk_bytes);
  int64_t total_bytes = 0;
  for (const ShardView& view : answer.shards) {
    const absl::Span<const float> values = view.parameters.values();
    total_bytes += static_cast<int64_t>(values.size() * sizeof(float));
    cutter.Add(view.shard, view.version, values,
               [&view](const float* data, size_t bytes) { return HoldingSlice(data, bytes, view.parameters); });
  }
  answer.header.set_total_bytes(total_bytes);
  std::vector<FrameBuilder> frames = cutter.Take();
  // The asking stream first, so that a short answer comes on it.
  std::vector<std::shared_ptr<FrameStream>> streams = {address.stream};
  if (frames.size() > 1) {
    absl::MutexLock lock(&address.session->mutex);
    for (const auto& stream : address.session->streams) {
      if (stream != address.stream) streams.push_back(stream);
    }
  }
  std::vector<std::vector<grpc::ByteBuffer>> outgoing(streams.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    FrameHeader& header = frames[i].header;
    header.set_kind(PULL_REPLY);
    header.set_request_id(address.request_id);
    header.set_attempt(address.attempt);
    if (i < streams.size()) *header.mutable_reply() = answer.header;
    outgoing[i % streams.size()].push_back(frames[i].Finish());
  }
  for (size_t i = 0; i < streams.size(); ++i) streams[i]->Enqueue(std::move(outgoing[i]));
}

DataPlaneServer::DataPlaneServer(Engine* engine, const DataPlaneServerOptions& options)
    : impl_(std::make_unique<Impl>(engine, options)) {}

DataPlaneServer::~DataPlaneServer() = default;

grpc::CallbackGenericService* DataPlaneServer::service() { return impl_.get(); }

void DataPlaneServer::Deliver(PsEffects effects) { impl_->Deliver(std::move(effects)); }

void DataPlaneServer::CloseStreams() { impl_->CloseStreams(); }

}  // namespace lagrange

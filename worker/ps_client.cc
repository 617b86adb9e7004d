#include "worker/ps_client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/check.h"
#include "common/partition.h"
#include "common/status.h"
#include "worker/ps_peer.h"

namespace lagrange {
namespace {

class StreamingPsClient final : public PsClient {
 public:
  StreamingPsClient(const PsClientOptions& options, ReplyCallback on_reply, ReconnectedCallback on_reconnected)
      : shared_(std::make_shared<PsClientShared>()) {
    shared_->options = options;
    shared_->on_reply = std::move(on_reply);
    shared_->on_reconnected = std::move(on_reconnected);
    // Unequal among all clients of a ps, over their restarts.
    std::random_device random;
    shared_->session_prefix = absl::StrCat(absl::Hex(random()), absl::Hex(random()));
  }

  ~StreamingPsClient() override {
    absl::flat_hash_map<int32_t, std::shared_ptr<PsPeer>> peers;
    std::vector<std::shared_ptr<PsPeer>> retired;
    {
      absl::MutexLock lock(&mutex_);
      peers.swap(peers_);
      retired.swap(retired_);
    }
    for (const auto& [index, peer] : peers) peer->Close();
    {
      absl::MutexLock lock(&shared_->mutex);
      shared_->mutex.Await(absl::Condition(
          +[](int64_t* live) { return *live == 0; }, &shared_->live));
    }
    // Here, because a call may own what owns the thread.
    shared_->calls.Stop();
    // Now this holds the last references to the channels (see ps_peer.h).
  }

  absl::Status UseShardMap(const ShardMap& map) override {
    RETURN_IF_ERROR(ValidateShardMap(map));
    std::vector<std::shared_ptr<PsPeer>> begun;
    std::vector<std::shared_ptr<PsPeer>> ended;
    std::vector<std::shared_ptr<PsPeer>> gone;
    {
      absl::MutexLock lock(&mutex_);
      // Those whose streams have let go of them.
      const auto first_gone =
          std::partition(retired_.begin(), retired_.end(), [](const auto& peer) { return peer.use_count() > 1; });
      gone.assign(first_gone, retired_.end());
      retired_.erase(first_gone, retired_.end());
      layout_ = LayOut(map);
      absl::flat_hash_map<int32_t, std::shared_ptr<PsPeer>> peers;
      for (const PsAddress& address : map.ps()) {
        std::shared_ptr<PsPeer>& former = peers_[address.ps_index()];
        if (former != nullptr && former->Is(address)) {
          peers[address.ps_index()] = std::move(former);
          continue;
        }
        peers[address.ps_index()] = std::make_shared<PsPeer>(shared_, address, former != nullptr);
        begun.push_back(peers[address.ps_index()]);
      }
      for (const auto& [index, former] : peers_) {
        if (former != nullptr) ended.push_back(former);
      }
      peers_ = std::move(peers);
      retired_.insert(retired_.end(), ended.begin(), ended.end());
    }
    for (const auto& peer : ended) peer->Close();
    for (const auto& peer : begun) peer->Connect();
    return absl::OkStatus();
  }

  void Pull(int32_t ps_index, uint64_t request_id, const RequestHeader& header,
            const ParameterLayout& destination) override {
    auto request = std::make_shared<PsRequest>();
    request->kind = PULL;
    Send(ps_index, request_id, header, destination, std::move(request));
  }

  void Push(int32_t ps_index, uint64_t request_id, const RequestHeader& header, const ParameterLayout& gradients,
            absl::Span<const uint32_t> shards) override {
    auto request = std::make_shared<PsRequest>();
    request->kind = PUSH;
    request->shards.assign(shards.begin(), shards.end());
    request->hold = std::make_shared<SendHold>(shared_);
    Send(ps_index, request_id, header, gradients, std::move(request));
  }

  void Forget(int32_t ps_index, uint64_t request_id) override {
    std::shared_ptr<PsPeer> peer;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = peers_.find(ps_index);
      if (found == peers_.end()) return;
      peer = found->second;
    }
    peer->Forget(request_id);
  }

 private:
  void Send(int32_t ps_index, uint64_t request_id, const RequestHeader& header, const ParameterLayout& memory,
            std::shared_ptr<PsRequest> request) {
    std::shared_ptr<PsPeer> peer;
    {
      absl::MutexLock lock(&mutex_);
      CHECK(layout_ != nullptr);
      request->layout = layout_;
      const auto found = peers_.find(ps_index);
      CHECK(found != peers_.end());
      peer = found->second;
    }
    CHECK(memory.variables.size() == static_cast<size_t>(request->layout->map.variables_size()));
    CHECK(memory.versions != nullptr && memory.versions->size() >= request->layout->positions.size());
    request->id = request_id;
    request->header = header;
    request->memory = memory;
    if (request->kind == PUSH && request->shards.empty()) {
      request->shards = request->layout->parts.at(ps_index).shards;
    }
    peer->Send(std::move(request));
  }

  const std::shared_ptr<PsClientShared> shared_;
  absl::Mutex mutex_;
  std::shared_ptr<const MapLayout> layout_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<int32_t, std::shared_ptr<PsPeer>> peers_ ABSL_GUARDED_BY(mutex_);
  // Closed, but perhaps held by streams that are ending.
  std::vector<std::shared_ptr<PsPeer>> retired_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<PsClient> NewPsClient(const PsClientOptions& options, PsClient::ReplyCallback on_reply,
                                      PsClient::ReconnectedCallback on_reconnected) {
  return std::make_unique<StreamingPsClient>(options, std::move(on_reply), std::move(on_reconnected));
}

}  // namespace lagrange

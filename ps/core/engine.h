// The decisions of one ps: admits pulls and pushes, applies them exactly once, cuts, keeps the clock table.
//
// For the daemon (ps/ps_service.h) and the simulation (tests/simulation), which both drive this very class. It owns the
// shards, the clock table and the forks; it never blocks on anything but Mutex, never reads a clock, opens nothing.
//
// Locks: Mutex is absl::Mutex in the daemon and NullMutex in the simulation. One guards the control state (clock table,
// waiting pulls, open rounds, cut, generation), one each shard. Lock order: a shard's lock may be taken under none or
// under the control lock, the control lock never under a shard's. Thread-safe.
//
// Invariants (numbers of ARCHITECTURE.md):
//  1. A key is applied at most once on each shard: bit set <=> applied, in one step under the shard's lock.
//  2. A fork holds exactly the operations applied before the shard first saw a cut >= the fork's.
//  3. A pull at step clock c under ssp{s} is answered only when every member's clock >= c - s.
// Proved by ps/core/*_test.cc and tests/simulation.

#ifndef PS_CORE_ENGINE_H_
#define PS_CORE_ENGINE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/control_plane.pb.h"
#include "proto/data_plane.pb.h"
#include "ps/core/buffer.h"

namespace lagrange {

// The shell's handle of one request: which stream to answer on, and the request's id. Never interpreted.
using RequestToken = uint64_t;

struct ShardView {
  uint32_t shard = 0;
  uint64_t version = 0;
  // Immutable for as long as it is held: an apply meanwhile writes to another buffer.
  BufferRef parameters;
};

struct PullAnswer {
  RequestToken token = 0;
  ReplyHeader header;
  // Empty unless header.code() is OK.
  std::vector<ShardView> shards;
};

struct PushAnswer {
  RequestToken token = 0;
  ReplyHeader header;
};

// What the shell has to send. Order within each vector is the order of the decisions.
struct PsEffects {
  std::vector<PullAnswer> pulls;
  std::vector<PushAnswer> pushes;
};

// For a caller that synchronizes.
class ABSL_LOCKABLE NullMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {}
  void Unlock() ABSL_UNLOCK_FUNCTION() {}
};

// Not a template itself, so that shells, tests and the simulation can hold either instantiation.
class Engine {
 public:
  virtual ~Engine() = default;

  // ---- control (from the chief) ----
  // Also answers requests that the command sets free (evictions, joins, cuts). Errors by code: Unavailable (SetIdentity
  // hasn't been called: send again), FailedPrecondition (another incarnation, or no shards installed), Aborted (older
  // term or generation), InvalidArgument (the command is malformed; nothing changed). Disks are the shell's: for
  // WriteCheckpoint Execute only checks term, generation, incarnation and that the cut is held, and the shell then
  // writes GetFork's shards; an InstallShards with a restore is refused here: the shell reads the files and calls
  // Restore instead. ShutDown only answers.
  virtual absl::StatusOr<PsCommandResult> Execute(const PsCommand& command, PsEffects* effects) = 0;

  // InstallShards from a checkpoint: `shards` are the snapshots of exactly the map's shards of this ps, any order
  // (versions, slots and dedupe state included). REQUIRES: command.has_install_shards().
  virtual absl::StatusOr<PsCommandResult> Restore(const PsCommand& command, std::vector<ShardSnapshot> shards) = 0;

  // Set once, when the chief has registered this ps.
  virtual void SetIdentity(uint64_t incarnation, uint64_t term, uint64_t generation) = 0;

  // ---- data path (from workers) ----
  // Answers at once, or keeps the token until the clocks allow. A repeat (same incarnation and request id, see
  // FrameHeader) replaces the waiting one.
  virtual void Pull(const RequestHeader& header, uint64_t request_id, absl::Span<const uint32_t> shards,
                    RequestToken token, PsEffects* effects) = 0;

  // First of a push: checks the header, takes over clock and stamp (raising the cut). True: go on with ApplyPart for
  // each part, then EndPush. False: effects hold the refusal, drop the parts.
  virtual bool BeginPush(const RequestHeader& header, uint64_t request_id, RequestToken token, PsEffects* effects) = 0;

  // One shard's part, whole: gradient has the shard's element count (else InvalidArgument), and is finite (else
  // InvalidArgument, "shard 3 of dense_0/kernel: gradient element 17 is nan"): nothing is applied of it then. MOVED
  // when the shards have been installed anew since BeginPush: EndPush then answers why. ResourceExhausted: no memory,
  // or a bound of ps/core/shard.h; nothing is applied.
  virtual absl::StatusOr<ShardResult> ApplyPart(const RequestHeader& header, uint32_t shard, uint64_t pulled_version,
                                                absl::Span<const float> gradient) = 0;

  // All parts have been given. Answers at once, or under bsp when the round closes. A reply's cut is the ps's after the
  // operation, so a cut above it has the operation in its forks.
  virtual void EndPush(const RequestHeader& header, uint64_t request_id, RequestToken token,
                       std::vector<ShardResult> results, PsEffects* effects) = 0;

  // The stream behind these tokens is gone: no answer to them any more.
  virtual void Forget(absl::Span<const RequestToken> tokens) = 0;

  // ---- for the shell ----
  // Elements of a shard, or NotFound. For sizing receive buffers before bytes are taken.
  virtual absl::StatusOr<int64_t> ElementCountOf(uint32_t shard) const = 0;
  // The fork of a cut (shard order), or NotFound: never seen, released, or pushed out by Shard::kMaxForks younger ones.
  virtual absl::StatusOr<std::vector<ShardSnapshot>> GetFork(uint64_t cut) const = 0;
  // Every shard as it is now, in shard order: for checkers outside (tests/simulation).
  virtual std::vector<ShardSnapshot> Snapshot() const = 0;
  // Since the start, for heartbeats.
  virtual StalenessStatistics Staleness() const = 0;
  virtual int64_t LargestClock() const = 0;
};

struct EngineOptions {
  // Pulls that may wait at once; one more is answered UNAVAILABLE. Each worker has at most two.
  int64_t max_waiting_pulls = 8192;
};

// The caller synchronizes: NullMutex. Target :engine.
std::unique_ptr<Engine> NewSingleThreadEngine(const EngineOptions& options);
// Thread-safe: absl::Mutex. Target :engine_thread_safe, apart because no core may link a mutex.
std::unique_ptr<Engine> NewThreadSafeEngine(const EngineOptions& options);

}  // namespace lagrange

#endif  // PS_CORE_ENGINE_H_

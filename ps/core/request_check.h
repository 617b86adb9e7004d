// What a ps asks of a request before it looks at its parts. Thread-safe: pure functions.

#ifndef PS_CORE_REQUEST_CHECK_H_
#define PS_CORE_REQUEST_CHECK_H_

#include <cstdint>
#include <string>

#include "proto/data_plane.pb.h"
#include "ps/core/dedupe.h"

namespace lagrange {

// What the ps knows of itself.
struct PsIdentity {
  uint64_t incarnation = 0;
  uint64_t term = 0;
  uint64_t generation = 0;
  // Of the installed shards; meaningless while `installed` is false.
  uint64_t map_version = 0;
  bool installed = false;
};

struct Refusal {
  // OK: not refused.
  ReplyCode code = OK;
  std::string message;
};

// Clocks beyond this can't come of counting steps.
inline constexpr int64_t kMaxClock = int64_t{1} << 60;
// The chief makes a cut at an epoch's end or on a timer: a stamp this far above the ps's own is damage.
inline constexpr uint64_t kMaxCutStep = uint64_t{1} << 32;

// Protocol, term, generation, readiness, map version: in the order that tells the sender the most.
Refusal CheckFences(const RequestHeader& header, const PsIdentity& ps);
// Clocks of a pull or a push.
Refusal CheckClocks(const RequestHeader& header);
// Key, examples and stamp of a push. `cut` is the ps's.
Refusal CheckPush(const RequestHeader& header, const LeaseTable& leases, uint64_t cut);
// The sender isn't in the clock table.
Refusal Fenced(const RequestHeader& header);

// A reply of this code with the ps's numbers.
ReplyHeader MakeReply(const Refusal& refusal, const PsIdentity& ps, uint64_t cut);

}  // namespace lagrange

#endif  // PS_CORE_REQUEST_CHECK_H_

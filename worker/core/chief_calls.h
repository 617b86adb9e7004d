// The calls to the chief that are on their way: repeats each until it is answered, and knows when to give up.
//
// For the step loop. Register, AcquireWork, ReportBatches, ReportEvaluation and Leave, at most one of each at a time; a
// repeat has the same call_id and the term known by then. Heartbeats aren't repeated, their failures are only noted
// here. Caller synchronizes. Owns the requests; never blocks.

#ifndef WORKER_CORE_CHIEF_CALLS_H_
#define WORKER_CORE_CHIEF_CALLS_H_

#include <cstdint>
#include <map>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/core/worker_effects.h"

namespace lagrange {

// A failed call is repeated after this: short beside a lease, long beside a refused connection.
inline constexpr absl::Duration kChiefRetryPause = absl::Milliseconds(200);

class ChiefCalls {
 public:
  explicit ChiefCalls(absl::Duration timeout) : timeout_(timeout) {}

  // One of CallRegister, CallAcquireWork, CallReportBatches, CallReportEvaluation, CallLeave; sets its call_id. It goes
  // out with the next SendDue after `due`. REQUIRES: none of its kind is outstanding.
  template <typename Call>
  uint64_t Begin(Call call, absl::Time due = absl::InfinitePast()) {
    call.call_id = NextId();
    outstanding_.emplace(call.call_id, Outstanding{call, due, 0});
    return call.call_id;
  }

  // Shared with heartbeats, so that ids never repeat.
  uint64_t NextId() { return next_id_++; }

  template <typename Call>
  bool IsOutstanding() const {
    for (const auto& [id, call] : outstanding_) {
      if (std::holds_alternative<Call>(call.call)) return true;
    }
    return false;
  }

  // The outstanding call's request (to read what was asked), or null.
  template <typename Call>
  const Call* Find(uint64_t call_id) const {
    const auto found = outstanding_.find(call_id);
    return found == outstanding_.end() ? nullptr : std::get_if<Call>(&found->second.call);
  }

  // The call is answered: forget it.
  void End(uint64_t call_id) { outstanding_.erase(call_id); }

  // Any answer of the chief: it lives.
  void NoteAnswer();
  // A call failed on its way (unknown ids too: heartbeats).
  void NoteFailure(uint64_t call_id, const absl::Status& status, absl::Time now);

  // Emits what is due, with this term in it.
  void SendDue(uint64_t term, absl::Time now, WorkerEffects* effects);
  absl::Time next_due() const;

  // How often this call has gone out; 0: unknown.
  int SendCount(uint64_t call_id) const;

  // Failing without an answer between, since; InfiniteFuture: not failing.
  absl::Time failing_since() const { return failing_since_; }
  const absl::Status& last_failure() const { return last_failure_; }

  // Drops all calls; their late answers are unknown.
  void Clear() { outstanding_.clear(); }

 private:
  struct Outstanding {
    WorkerEffect call;
    absl::Time due;
    int send_count;
  };

  absl::Duration timeout_;
  uint64_t next_id_ = 1;
  // Ordered, so that effects come in the same order in every run.
  std::map<uint64_t, Outstanding> outstanding_;
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Status last_failure_;
};

}  // namespace lagrange

#endif  // WORKER_CORE_CHIEF_CALLS_H_

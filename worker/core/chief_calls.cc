#include "worker/core/chief_calls.h"

#include <algorithm>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"

namespace lagrange {
namespace {

void SetTerm(uint64_t term, WorkerEffect* call) {
  std::visit(
      [term](auto& effect) {
        using Call = std::decay_t<decltype(effect)>;
        if constexpr (std::is_same_v<Call, CallAcquireWork> || std::is_same_v<Call, CallReportBatches> ||
                      std::is_same_v<Call, CallReportEvaluation> || std::is_same_v<Call, CallLeave>) {
          effect.request.set_term(term);
        }
      },
      *call);
}

}  // namespace

void ChiefCalls::NoteAnswer() { failing_since_ = absl::InfiniteFuture(); }

void ChiefCalls::NoteFailure(uint64_t call_id, const absl::Status& status, absl::Time now) {
  failing_since_ = std::min(failing_since_, now);
  last_failure_ = status;
  const auto found = outstanding_.find(call_id);
  if (found != outstanding_.end()) found->second.due = now + kChiefRetryPause;
}

void ChiefCalls::SendDue(uint64_t term, absl::Time now, WorkerEffects* effects) {
  for (auto& [id, call] : outstanding_) {
    if (call.due > now) continue;
    // A registration may take as long as the data need to load, so its silence says nothing of the chief.
    if (call.send_count > 0 && failing_since_ == absl::InfiniteFuture() &&
        !std::holds_alternative<CallRegister>(call.call)) {
      failing_since_ = now;
      last_failure_ = absl::DeadlineExceededError(absl::StrCat("no answer within ", absl::FormatDuration(timeout_)));
    }
    SetTerm(term, &call.call);
    effects->push_back(call.call);
    call.due = now + timeout_;
    ++call.send_count;
  }
}

absl::Time ChiefCalls::next_due() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, call] : outstanding_) next = std::min(next, call.due);
  return next;
}

int ChiefCalls::SendCount(uint64_t call_id) const {
  const auto found = outstanding_.find(call_id);
  return found == outstanding_.end() ? 0 : found->second.send_count;
}

}  // namespace lagrange

#include "worker/core/batch_reports.h"

#include <algorithm>

#include "common/check.h"

namespace lagrange {
namespace {

// Moves the first `count` entries of one repeated field to the end of another.
template <typename Field>
void MoveFirst(int count, Field* from, Field* to) {
  for (int i = 0; i < count; ++i) *to->Add() = std::move(*from->Mutable(i));
  from->DeleteSubrange(0, count);
}

}  // namespace

void BatchReports::NoteWaiting(absl::Time due) { due_ = std::min(due_, due); }

void BatchReports::AddDone(const BatchDone& done, absl::Time now) {
  *waiting_.add_done() = done;
  NoteWaiting(now + interval_);
}

void BatchReports::AddSkipped(const BatchSkipped& skipped, absl::Time now) {
  *waiting_.add_skipped() = skipped;
  NoteWaiting(now + interval_);
}

void BatchReports::Flush() {
  if (waiting_.done_size() + waiting_.skipped_size() > 0) due_ = absl::InfinitePast();
}

absl::Time BatchReports::next_due() const { return in_flight_ ? absl::InfiniteFuture() : due_; }

ReportBatchesRequest BatchReports::Take() {
  CHECK(!in_flight_);
  in_flight_.emplace();
  const int done = std::min(waiting_.done_size(), kMaxBatchesPerReport);
  const int skipped = std::min(waiting_.skipped_size(), kMaxBatchesPerReport - done);
  MoveFirst(done, waiting_.mutable_done(), in_flight_->mutable_done());
  MoveFirst(skipped, waiting_.mutable_skipped(), in_flight_->mutable_skipped());
  const bool more = waiting_.done_size() + waiting_.skipped_size() > 0;
  due_ = more ? absl::InfinitePast() : absl::InfiniteFuture();
  return *in_flight_;
}

std::vector<std::pair<int64_t, int64_t>> BatchReports::OnResponse(const ReportBatchesResponse& response,
                                                                  absl::Time retry_at) {
  std::vector<std::pair<int64_t, int64_t>> lost;
  if (!in_flight_) return lost;
  const ReportBatchesRequest report = *std::move(in_flight_);
  in_flight_.reset();
  const auto verdict_of = [&response](int i) {
    return i < response.verdicts_size() ? response.verdicts(i) : BATCH_VERDICT_UNSPECIFIED;
  };
  const auto note_lost = [&lost](const BatchKey& key) {
    const std::pair<int64_t, int64_t> lease(key.epoch(), key.lease());
    if (std::find(lost.begin(), lost.end(), lease) == lost.end()) lost.push_back(lease);
  };
  for (int i = 0; i < report.done_size() + report.skipped_size(); ++i) {
    const bool is_done = i < report.done_size();
    const BatchVerdict verdict = verdict_of(i);
    if (verdict == BATCH_VERDICT_UNSPECIFIED) {
      if (is_done) {
        *waiting_.add_done() = report.done(i);
      } else {
        *waiting_.add_skipped() = report.skipped(i - report.done_size());
      }
      NoteWaiting(retry_at);
    } else if (verdict == NOT_HOLDER) {
      note_lost(is_done ? report.done(i).key() : report.skipped(i - report.done_size()).key());
    }
  }
  return lost;
}

bool BatchReports::empty() const { return !in_flight_ && waiting_.done_size() + waiting_.skipped_size() == 0; }

void BatchReports::Clear() {
  waiting_.Clear();
  in_flight_.reset();
  due_ = absl::InfiniteFuture();
}

}  // namespace lagrange

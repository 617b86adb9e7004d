// The batches that a worker has settled and the chief hasn't confirmed yet.
//
// For the step loop. Bundles them into one report at a time; what a report held is kept until the chief has given its
// verdict. Caller synchronizes. Owns only messages; never blocks. Bounded by the leases that the chief has given out.

#ifndef WORKER_CORE_BATCH_REPORTS_H_
#define WORKER_CORE_BATCH_REPORTS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

class BatchReports {
 public:
  // A batch waits for others at most so long.
  explicit BatchReports(absl::Duration interval) : interval_(interval) {}

  void AddDone(const BatchDone& done, absl::Time now);
  void AddSkipped(const BatchSkipped& skipped, absl::Time now);

  // What waits is due at once.
  void Flush();

  // When the next report is to be taken: InfiniteFuture while one is in flight or nothing waits.
  absl::Time next_due() const;

  // The waiting batches, at most kMaxBatchesPerReport; they are in flight from now on. REQUIRES: none is in flight.
  ReportBatchesRequest Take();

  // Drops what the verdicts settle, whichever way; entries without a verdict wait again, until `retry_at`. Returns the
  // leases (epoch, lease) that are not this worker's any more. Does nothing when no report is in flight.
  std::vector<std::pair<int64_t, int64_t>> OnResponse(const ReportBatchesResponse& response, absl::Time retry_at);

  // Nothing waits and nothing is in flight.
  bool empty() const;
  void Clear();

  // Keeps a report far below gRPC's 4 MiB.
  static constexpr int kMaxBatchesPerReport = 1024;

 private:
  void NoteWaiting(absl::Time due);

  absl::Duration interval_;
  ReportBatchesRequest waiting_;
  absl::Time due_ = absl::InfiniteFuture();
  std::optional<ReportBatchesRequest> in_flight_;
};

}  // namespace lagrange

#endif  // WORKER_CORE_BATCH_REPORTS_H_

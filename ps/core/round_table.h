// Who has contributed to which open bsp round of this ps, and who waits for its close. The gradients lie in the shards.
//
// A round is closed when each member of the clock table has contributed to it (or to a later one), or has a larger
// clock; closing one closes all before it. Caller synchronizes. At most Shard::kMaxOpenRounds rounds are open.

#ifndef PS_CORE_ROUND_TABLE_H_
#define PS_CORE_ROUND_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ps/core/clock_table.h"
#include "ps/core/engine.h"

namespace lagrange {

// A push that is answered when its round closes.
struct Contribution {
  RequestToken token = 0;
  uint64_t request_id = 0;
  std::vector<ShardResult> results;
};

class RoundTable {
 public:
  bool IsClosed(int64_t round) const { return round <= closed_round_; }
  // The smallest clock that a joiner can still contribute at.
  int64_t first_open_clock() const { return closed_round_ + 1; }

  // Opens the round unless it is. False: too many others are open. REQUIRES: !IsClosed(round).
  bool Open(int64_t round);
  // The incarnation's contribution, in place of its last one of the round. REQUIRES: Open(round) was true.
  void Contribute(int64_t round, uint64_t incarnation, Contribution contribution);

  // The first open round if it is to be closed now.
  std::optional<int64_t> NextToClose(const ClockTable& clocks) const;
  // Closes it and gives back who waits. REQUIRES: NextToClose returned it.
  std::vector<Contribution> Close(int64_t round);

  // Takes away the waiting pushes of one who left (its gradients stay in), or of everyone.
  std::vector<Contribution> TakeWaitingOf(uint64_t incarnation);
  std::vector<Contribution> TakeAllWaiting();
  void Forget(absl::Span<const RequestToken> tokens);

 private:
  struct Contributor {
    bool waits = false;
    Contribution contribution;
  };
  using Contributors = std::map<uint64_t, Contributor>;

  static void TakeWaiting(Contributor* contributor, std::vector<Contribution>* taken);

  std::map<int64_t, Contributors> open_;
  int64_t closed_round_ = -1;
};

}  // namespace lagrange

#endif  // PS_CORE_ROUND_TABLE_H_

// Pulls that wait for the clocks, in the order in which they came. Caller synchronizes. Bounded by its maker's number.

#ifndef PS_CORE_WAITING_PULLS_H_
#define PS_CORE_WAITING_PULLS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ps/core/engine.h"

namespace lagrange {

struct WaitingPull {
  RequestToken token = 0;
  uint64_t request_id = 0;
  uint64_t incarnation = 0;
  int64_t step_clock = 0;
  // Empty: all of the ps.
  std::vector<uint32_t> shards;
};

class WaitingPulls {
 public:
  explicit WaitingPulls(int64_t max_count) : max_count_(max_count) {}

  // In place of the same request if it waits already. False: there are too many.
  bool Add(WaitingPull pull) {
    for (WaitingPull& other : pulls_) {
      if (other.incarnation != pull.incarnation || other.request_id != pull.request_id) continue;
      other = std::move(pull);
      return true;
    }
    if (static_cast<int64_t>(pulls_.size()) >= max_count_) return false;
    pulls_.push_back(std::move(pull));
    return true;
  }

  // Those that the predicate picks, in order; the others stay.
  template <typename Predicate>
  std::vector<WaitingPull> Take(const Predicate& predicate) {
    const auto first = std::stable_partition(pulls_.begin(), pulls_.end(),
                                             [&predicate](const WaitingPull& pull) { return !predicate(pull); });
    std::vector<WaitingPull> taken(std::make_move_iterator(first), std::make_move_iterator(pulls_.end()));
    pulls_.erase(first, pulls_.end());
    return taken;
  }

  void Forget(absl::Span<const RequestToken> tokens) {
    Take([tokens](const WaitingPull& pull) {
      return std::find(tokens.begin(), tokens.end(), pull.token) != tokens.end();
    });
  }

 private:
  const int64_t max_count_;
  std::vector<WaitingPull> pulls_;
};

}  // namespace lagrange

#endif  // PS_CORE_WAITING_PULLS_H_

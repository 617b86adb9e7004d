// Tells every ps of the leases that are settled, and says when all have answered.
//
// For the chief's core. Caller synchronizes. Each ps has at most one RetireLeases outstanding: leases that settle
// meanwhile are bundled into the next, so that a fast job doesn't cost a message a lease. Never gives up: PsCommands
// sends again.

#ifndef CHIEF_CORE_RETIREMENT_H_
#define CHIEF_CORE_RETIREMENT_H_

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "proto/control_plane.pb.h"

namespace lagrange {

class Retirement {
 public:
  explicit Retirement(int32_t ps_count);

  void Add(const RetireLeases::Lease& lease);
  // The next command for this ps, if it has none outstanding and there is something to tell; it counts as outstanding.
  bool NextFor(int32_t ps_index, RetireLeases* command);
  // The ps answered its command. Returns the leases (epoch, lease) that all ps have answered now.
  std::vector<std::pair<int64_t, int64_t>> Answered(int32_t ps_index, const RetireLeases& command);

 private:
  struct Ps {
    bool outstanding = false;
    std::vector<RetireLeases::Lease> queue;
  };
  std::vector<Ps> ps_;
  // (epoch, lease) -> ps that have yet to answer.
  std::map<std::pair<int64_t, int64_t>, std::set<int32_t>> waiting_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_RETIREMENT_H_

// What `lagrange status` prints: phase, epoch, members, examples/s, staleness. Pure function.

#ifndef CLI_STATUS_TEXT_H_
#define CLI_STATUS_TEXT_H_

#include <string>

#include "proto/control_plane.pb.h"

namespace lagrange {

// Several lines, each ended.
std::string StatusText(const JobStatus& status);

}  // namespace lagrange

#endif  // CLI_STATUS_TEXT_H_

// What `lagrange local` shows of a running job: a bar on a terminal, a plain line elsewhere. Pure functions of a
// status.

#ifndef CLI_PROGRESS_LINE_H_
#define CLI_PROGRESS_LINE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

// Fraction of all epochs' examples that are settled, in [0, 1].
double ProgressFraction(const JobStatus& status);

// Examples left over the present rate; infinite when the rate is 0.
absl::Duration TimeLeft(const JobStatus& status);

// "1:02:03", "4:05", or "-" when infinite.
std::string FormatTimeLeft(absl::Duration left);

// "12,345".
std::string FormatThousands(int64_t number);

// "epoch 3/10 [=========>          ]  45%  12,345 examples/s  0:42 left". At most `columns` wide, at least the epoch.
std::string ProgressBar(const JobStatus& status, int columns);

// The same facts without a bar, and while nothing trains yet the phase and its message.
std::string ProgressText(const JobStatus& status);

}  // namespace lagrange

#endif  // CLI_PROGRESS_LINE_H_

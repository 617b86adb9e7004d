#include "cli/status_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/progress_line.h"
#include "proto/staleness_statistics.h"

namespace lagrange {
namespace {

std::string MemberLine(const MemberStatus& member) {
  const bool is_ps = member.role() == PS;
  std::string line = absl::StrFormat("  %-6s %3d  %-7s", is_ps ? "ps" : "worker", member.task_index(), member.state());
  absl::StrAppendFormat(&line, "  heard %5.1f s ago",
                        static_cast<double>(member.last_heard().seconds()) + member.last_heard().nanos() * 1e-9);
  if (is_ps) {
    absl::StrAppend(&line, "  ", member.address());
  } else {
    absl::StrAppendFormat(&line, "  clock %d  %s examples/s", member.clock(),
                          FormatThousands(std::llround(member.examples_per_second())));
  }
  if (!member.host().empty()) absl::StrAppend(&line, "  on ", member.host());
  return line + "\n";
}

}  // namespace

std::string StatusText(const JobStatus& status) {
  std::string text = absl::StrFormat("job %s: %s", status.job_name(), status.phase());
  if (!status.message().empty()) absl::StrAppend(&text, " (", status.message(), ")");
  absl::StrAppendFormat(&text, "\nepoch %d of %d: %s of %s examples settled, %s examples/s, %s left\n", status.epoch(),
                        status.epochs_total(), FormatThousands(status.examples_done_in_epoch()),
                        FormatThousands(status.examples_per_epoch()),
                        FormatThousands(std::llround(status.examples_per_second())), FormatTimeLeft(TimeLeft(status)));
  absl::StrAppendFormat(&text, "consistency %s: staleness mean %.2f, p99 %.0f versions; largest %d clocks\n",
                        status.consistency(), MeanStaleness(status.staleness()),
                        StalenessPercentile(status.staleness(), 0.99), status.staleness().clocks_max());
  absl::StrAppendFormat(&text, "term %d, generation %d, shard map %d, version %s\nmembers:\n", status.term(),
                        status.generation(), status.map_version(), status.build_version());
  for (const MemberStatus& member : status.members()) text += MemberLine(member);
  return text;
}

}  // namespace lagrange

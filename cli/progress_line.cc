#include "cli/progress_line.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lagrange {
namespace {

int64_t ExamplesTotal(const JobStatus& status) { return status.examples_per_epoch() * status.epochs_total(); }

int64_t ExamplesSettled(const JobStatus& status) {
  const int64_t before = status.examples_per_epoch() * std::max(0, status.epoch() - 1);
  return std::min(ExamplesTotal(status), before + status.examples_done_in_epoch());
}

std::string Rate(const JobStatus& status) {
  const double rate = status.examples_per_second();
  if (!(rate >= 0) || rate > 1e15) return "- examples/s";
  return absl::StrCat(FormatThousands(std::llround(rate)), " examples/s");
}

}  // namespace

double ProgressFraction(const JobStatus& status) {
  const int64_t total = ExamplesTotal(status);
  if (total <= 0) return 0;
  return static_cast<double>(ExamplesSettled(status)) / static_cast<double>(total);
}

absl::Duration TimeLeft(const JobStatus& status) {
  const double left = static_cast<double>(ExamplesTotal(status) - ExamplesSettled(status));
  if (left <= 0) return absl::ZeroDuration();
  if (!(status.examples_per_second() > 0)) return absl::InfiniteDuration();
  return absl::Seconds(left / status.examples_per_second());
}

std::string FormatTimeLeft(absl::Duration left) {
  // A hundred days says no more than "-" does.
  if (left > absl::Hours(2400)) return "-";
  const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(left, absl::Seconds(1)));
  if (seconds >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  }
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

std::string FormatThousands(int64_t number) {
  std::string digits = absl::StrCat(number);
  const size_t first = digits[0] == '-' ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string ProgressBar(const JobStatus& status, int columns) {
  const std::string head = absl::StrFormat("epoch %d/%d ", status.epoch(), status.epochs_total());
  const double fraction = ProgressFraction(status);
  const std::string tail = absl::StrFormat(" %3d%%  %s  %s left", static_cast<int>(fraction * 100), Rate(status),
                                           FormatTimeLeft(TimeLeft(status)));
  const int width = std::min(40, columns - static_cast<int>(head.size() + tail.size()) - 2);
  if (width < 4) return head.substr(0, std::max(columns, 0));
  const int filled = static_cast<int>(fraction * width);
  std::string bar(width, ' ');
  std::fill(bar.begin(), bar.begin() + filled, '=');
  if (filled < width) bar[filled] = '>';
  return absl::StrCat(head, "[", bar, "]", tail);
}

std::string ProgressText(const JobStatus& status) {
  if (status.epochs_total() == 0 || status.phase() == "waiting" || status.phase() == "loading") {
    return status.message().empty() ? status.phase() : absl::StrCat(status.phase(), ": ", status.message());
  }
  return absl::StrFormat("%s: epoch %d/%d, %d%%, %s, %s left", status.phase(), status.epoch(), status.epochs_total(),
                         static_cast<int>(ProgressFraction(status) * 100), Rate(status),
                         FormatTimeLeft(TimeLeft(status)));
}

}  // namespace lagrange

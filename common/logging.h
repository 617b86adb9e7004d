// Lines for people on stderr, each with time, level, role and task index:
//   2026-11-30 08:52:54.123 I [worker 1] epoch 3: 412 batches
//
// One line to a call: control characters in a message are shown as \xNN, so that a peer's text can't forge a line. The
// one piece of global state in the house. Thread-safe; blocks on stderr.

#ifndef COMMON_LOGGING_H_
#define COMMON_LOGGING_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lagrange {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error", else InvalidArgument: what a flag says.
absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);

// Lines under this level are dropped. kInfo until it is set.
void SetLogLevel(LogLevel level);
bool LogLevelEnabled(LogLevel level);

// What stands in the brackets: "chief", "worker" and then, when the chief has given the number, "worker 1".
void SetLogIdentity(absl::string_view role);
void SetLogIdentity(absl::string_view role, int task_index);

void LogLine(LogLevel level, absl::string_view message);

// Arguments as for absl::StrCat; not formatted when the level is dropped.
template <typename... Args>
void LogDebug(const Args&... args) {
  if (LogLevelEnabled(LogLevel::kDebug)) LogLine(LogLevel::kDebug, absl::StrCat(args...));
}
template <typename... Args>
void LogInfo(const Args&... args) {
  if (LogLevelEnabled(LogLevel::kInfo)) LogLine(LogLevel::kInfo, absl::StrCat(args...));
}
template <typename... Args>
void LogWarning(const Args&... args) {
  if (LogLevelEnabled(LogLevel::kWarning)) LogLine(LogLevel::kWarning, absl::StrCat(args...));
}
template <typename... Args>
void LogError(const Args&... args) {
  if (LogLevelEnabled(LogLevel::kError)) LogLine(LogLevel::kError, absl::StrCat(args...));
}

}  // namespace lagrange

#endif  // COMMON_LOGGING_H_

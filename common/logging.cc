#include "common/logging.h"

#include <memory>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace lagrange {
namespace {

// A line longer than this is somebody's data, not a message.
constexpr size_t kMaxMessageBytes = 8192;

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::string PatternFor(absl::string_view identity) {
  return absl::StrCat("%Y-%m-%d %H:%M:%S.%e %L [", absl::StrReplaceAll(identity, {{"%", "%%"}}), "] %v");
}

// Never destroyed: threads may log until the process ends.
spdlog::logger& Logger() {
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("lagrange", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::info);
    made->set_pattern(PatternFor("lagrange"));
    return made;
  }();
  return *logger;
}

std::string Printable(absl::string_view message) {
  std::string line;
  for (const char c : message.substr(0, kMaxMessageBytes)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppendFormat(&line, "\\x%02x", byte);
    } else {
      line.push_back(c);
    }
  }
  if (message.size() > kMaxMessageBytes) absl::StrAppend(&line, "... (", message.size(), " bytes)");
  return line;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warning") return LogLevel::kWarning;
  if (text == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("log level: expected debug, info, warning or error, got \"", text, "\""));
}

void SetLogLevel(LogLevel level) { Logger().set_level(SpdlogLevel(level)); }

bool LogLevelEnabled(LogLevel level) { return Logger().should_log(SpdlogLevel(level)); }

void SetLogIdentity(absl::string_view role) { Logger().set_pattern(PatternFor(role)); }

void SetLogIdentity(absl::string_view role, int task_index) { SetLogIdentity(absl::StrCat(role, " ", task_index)); }

void LogLine(LogLevel level, absl::string_view message) {
  const std::string line = Printable(message);
  Logger().log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace lagrange

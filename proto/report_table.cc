#include "proto/report_table.h"

#include <google/protobuf/util/json_util.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lagrange {
namespace {

constexpr char kHead[] = "epoch  training loss  test loss  test accuracy  examples/s  staleness mean   p99\n";

// An epoch that wasn't evaluated has neither; a loss of exactly 0 with accuracy 0 cannot come from an evaluation, since
// a cross-entropy of 0 has every example right.
bool WasEvaluated(const EpochReport& epoch) { return epoch.test_loss() != 0 || epoch.test_accuracy() != 0; }

std::string Row(const EpochReport& epoch) {
  const std::string loss = WasEvaluated(epoch) ? absl::StrFormat("%.4f", epoch.test_loss()) : "-";
  const std::string accuracy = WasEvaluated(epoch) ? absl::StrFormat("%.4f", epoch.test_accuracy()) : "-";
  std::string row =
      absl::StrFormat("%5d  %13.4f  %9s  %13s  %10.0f  %14.2f  %4.0f", epoch.epoch(), epoch.training_loss(), loss,
                      accuracy, epoch.examples_per_second(), epoch.staleness_mean(), epoch.staleness_p99());
  if (epoch.examples_skipped() > 0) absl::StrAppend(&row, "  ", epoch.examples_skipped(), " examples skipped");
  return absl::StrCat(row, "\n");
}

}  // namespace

std::string FormatReportTable(const JobReport& report) {
  std::string table = kHead;
  for (const EpochReport& epoch : report.epochs()) absl::StrAppend(&table, Row(epoch));
  if (report.bad_pushes() > 0) {
    absl::StrAppend(&table, report.bad_pushes(), " pushes were refused for NaN or Inf\n");
  }
  absl::StrAppend(&table, "checkpoint: ", report.checkpoint().empty() ? "none" : report.checkpoint(), "\n");
  return table;
}

absl::StatusOr<std::string> FormatReportJson(const JobReport& report) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto printed = google::protobuf::util::MessageToJsonString(report, &text, options);
  if (!printed.ok()) {
    return absl::InternalError(absl::StrCat("the report cannot be printed as JSON: ",
                                            absl::string_view(printed.message().data(), printed.message().size())));
  }
  return text;
}

}  // namespace lagrange

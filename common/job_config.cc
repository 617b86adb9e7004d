#include "common/job_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/job_text.h"
#include "common/prng.h"
#include "common/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"

namespace lagrange {
namespace {

using ::google::protobuf::TextFormat;

// A thousand layers take 100 KB.
constexpr size_t kMaxJobBytes = 4 << 20;
// JobSpec's own nesting is 6.
constexpr int kMaxNesting = 32;
constexpr int32_t kMaxStaleness = 1000000;
constexpr size_t kMaxMisspeltLength = 64;

// Keeps the first error: what follows it is mostly its consequence.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (!message_.empty()) return;
    position_ = {std::max(0, line) + 1, std::max(0, column) + 1};
    message_ = message;
  }

  TextPosition position() const { return position_; }
  const std::string& message() const { return message_; }

 private:
  TextPosition position_;
  std::string message_;
};

// Insertions, deletions, substitutions and exchanges of neighbours that make b of a.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      size_t least = std::min(distance[i - 1][j], distance[i][j - 1]) + 1;
      least = std::min(least, distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        least = std::min(least, distance[i - 2][j - 2] + 1);
      }
      distance[i][j] = least;
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

absl::StatusOr<ParsedJob> ParseJob(absl::string_view file_name, const std::string& text) {
  if (text.size() > kMaxJobBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": expected at most ", kMaxJobBytes, " bytes, got ", text.size()));
  }
  FirstError error;
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.WriteLocationsTo(&tree);
  parser.SetRecursionLimit(kMaxNesting);
  ParsedJob job;
  if (!parser.ParseFromString(text, &job.spec)) {
    return absl::InvalidArgumentError(DescribeTextError(file_name, text, error.position(), error.message()));
  }
  job.locations = std::make_shared<const FieldLocations>(file_name, tree);
  FillDefaults(&job.spec);
  const absl::Status valid = ValidateJob(job.spec);
  if (valid.ok()) return job;
  const absl::string_view path = valid.message().substr(0, valid.message().find(':'));
  return absl::InvalidArgumentError(absl::StrCat(job.locations->Describe(path), ": ", valid.message()));
}

std::string DescribeField(const ParsedJob& job, absl::string_view path) {
  if (job.locations == nullptr) return std::string(path);
  return absl::StrCat(job.locations->Describe(path), ": ", path);
}

std::string JobDigest(const JobSpec& job) {
  JobSpec filled = job;
  FillDefaults(&filled);
  JobSpec identity;
  *identity.mutable_model() = filled.model();
  *identity.mutable_data() = filled.data();
  identity.set_seed(filled.seed());
  identity.set_batch_size(filled.batch_size());
  *identity.mutable_optimizer() = filled.optimizer();
  // Fields in the order of their numbers and no maps: these bytes are the same in every process and release.
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    identity.SerializeToCodedStream(&coded);
  }
  return absl::StrCat(absl::Hex(KeyOfName(bytes), absl::kZeroPad16));
}

std::string NearestName(absl::string_view misspelt, const std::vector<std::string>& known) {
  if (misspelt.size() > kMaxMisspeltLength) return "";
  std::string nearest;
  size_t least = std::max<size_t>(1, misspelt.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(misspelt, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

absl::StatusOr<ConsistencySpec> ParseConsistency(absl::string_view text, const ConsistencySpec& of_the_job) {
  ConsistencySpec consistency;
  absl::string_view staleness_text = text;
  if (text == "asp") {
    consistency.mutable_asp();
  } else if (text == "bsp") {
    consistency.mutable_bsp();
  } else if (text == "ssp") {
    if (of_the_job.has_ssp()) consistency = of_the_job;
    if (!consistency.ssp().has_staleness()) consistency.mutable_ssp()->set_staleness(3);
  } else if (absl::ConsumePrefix(&staleness_text, "ssp:")) {
    int32_t staleness = 0;
    if (!absl::SimpleAtoi(staleness_text, &staleness) || staleness < 0 || staleness > kMaxStaleness) {
      return absl::InvalidArgumentError(absl::StrCat("consistency: expected ssp:N with N from 0 to ", kMaxStaleness,
                                                     ", got \"", text.substr(0, kMaxMisspeltLength), "\""));
    }
    consistency.mutable_ssp()->set_staleness(staleness);
  } else {
    const std::string nearest = NearestName(text, {"asp", "bsp", "ssp"});
    return absl::InvalidArgumentError(
        absl::StrCat("consistency: expected asp, bsp, ssp or ssp:N, got \"", text.substr(0, kMaxMisspeltLength), "\"",
                     nearest.empty() ? "" : absl::StrCat("; did you mean \"", nearest, "\"?")));
  }
  return consistency;
}

std::string DescribeConsistency(const ConsistencySpec& consistency) {
  if (consistency.has_bsp()) return "bsp";
  if (!consistency.has_ssp()) return "asp";
  return absl::StrCat("ssp{", consistency.ssp().has_staleness() ? consistency.ssp().staleness() : 3, "}");
}

}  // namespace lagrange

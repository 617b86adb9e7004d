#include "chief/core/checkpoint_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/check.h"
#include "common/prng.h"
#include "common/version.h"

namespace lagrange {
namespace {

// A crash can interrupt the deletions of one call only, and one call lists one checkpoint; max_to_keep may have been
// lowered in between, which deletes a few at once.
constexpr size_t kDeletionsToRepeat = 4;

absl::Status Unfit(const RestoreSource& restore, absl::string_view what, const std::string& expected,
                   const std::string& got) {
  return absl::FailedPreconditionError(
      absl::StrCat(restore.directory(), ": ", what, ": this job has ", expected, ", the checkpoint ", got));
}

}  // namespace

std::string ModelDigest(absl::Span<const VariableSpec> variables) {
  uint64_t key = KeyOfName("model");
  for (const VariableSpec& variable : variables) {
    key = CombineKeys(key, KeyOfName(variable.name()));
    key = CombineKeys(key, variable.shape_size());
    for (const int64_t dimension : variable.shape()) key = CombineKeys(key, dimension);
  }
  return absl::StrFormat("%016x", key);
}

std::string OptimizerName(const JobSpec& job) {
  const OptimizerSpec& optimizer = job.optimizer();
  const auto* kind = optimizer.GetDescriptor()->FindOneofByName("kind");
  const auto* field = optimizer.GetReflection()->GetOneofFieldDescriptor(optimizer, kind);
  return field == nullptr ? "" : field->name();
}

absl::Status CheckRestore(const RestoreSource& restore, const JobSpec& job) {
  const CheckpointManifest& manifest = restore.manifest();
  if (manifest.format_version() != kCheckpointFormatVersion) {
    return Unfit(restore, "format_version", absl::StrCat(kCheckpointFormatVersion),
                 absl::StrCat(manifest.format_version()));
  }
  if (manifest.optimizer() != OptimizerName(job)) {
    return Unfit(restore, "optimizer", OptimizerName(job), manifest.optimizer());
  }
  const CutLedger& ledger = manifest.ledger();
  if (ledger.open_leases_size() > 0) {
    return Unfit(restore, "open leases", "a start at an epoch's end", absl::StrCat(ledger.open_leases_size()));
  }
  if (ledger.epochs_complete() < 0 || ledger.epochs_complete() >= job.epochs()) {
    return Unfit(restore, "epochs", absl::StrCat(job.epochs()),
                 absl::StrCat(ledger.epochs_complete(), " complete already"));
  }
  return absl::OkStatus();
}

absl::Status CheckRestoredModel(const RestoreSource& restore, absl::Span<const VariableSpec> variables,
                                const BatchCutter& cutter) {
  const CheckpointManifest& manifest = restore.manifest();
  const std::string digest = ModelDigest(variables);
  if (manifest.model_digest() != digest) {
    std::string ours;
    for (const VariableSpec& variable : variables) absl::StrAppend(&ours, " ", variable.name());
    std::string theirs;
    for (const VariableEntry& variable : manifest.variables()) absl::StrAppend(&theirs, " ", variable.name());
    return Unfit(restore, "model", absl::StrCat(digest, " (", absl::StripLeadingAsciiWhitespace(ours), ")"),
                 absl::StrCat(manifest.model_digest(), " (", absl::StripLeadingAsciiWhitespace(theirs), ")"));
  }
  // Shards know the batches that they hold by epoch * leases_per_epoch + lease. Under another number, batches still to
  // come would look like ones applied before.
  if (manifest.ledger().epochs_complete() > 0 && manifest.ledger().leases_per_epoch() != cutter.lease_count()) {
    return Unfit(restore, "leases in an epoch (train records, batch_size and data.examples_per_lease)",
                 absl::StrCat(cutter.lease_count()), absl::StrCat(manifest.ledger().leases_per_epoch()));
  }
  return absl::OkStatus();
}

CheckpointPlan::CheckpointPlan(const Options& options, const std::map<uint64_t, CheckpointRecord>& listed)
    : options_(options) {
  for (const auto& [cut, record] : listed) {
    if (record.state == CheckpointState::kListed) listed_[cut] = record;
    if (record.state == CheckpointState::kDeleted) deleted_.push_back(record.directory);
  }
}

std::string CheckpointPlan::DirectoryOf(int64_t epoch, uint64_t cut) const {
  return absl::StrFormat("%s/%s-%016x-epoch-%05d-cut-%d", absl::StripSuffix(options_.directory, "/"), options_.job_name,
                         options_.run_id, epoch + 1, cut);
}

WriteCheckpoint CheckpointPlan::CommandFor(int64_t epoch, uint64_t cut, int32_t ps_index) const {
  WriteCheckpoint command;
  command.set_cut(cut);
  command.set_directory(DirectoryOf(epoch, cut));
  command.set_file_stem(absl::StrFormat("ps-%05d-of-%05d", ps_index, options_.ps_count));
  return command;
}

void CheckpointPlan::Begin(int64_t epoch, uint64_t cut) {
  Begun& begun = begun_[cut];
  begun.epoch = epoch;
  for (int32_t i = 0; i < options_.ps_count; ++i) begun.waiting.insert(i);
}

bool CheckpointPlan::FilesWritten(uint64_t cut, int32_t ps_index, const PsCommandResult& result) {
  const auto found = begun_.find(cut);
  if (found == begun_.end() || found->second.waiting.erase(ps_index) == 0) return false;
  found->second.files[ps_index].assign(result.files().begin(), result.files().end());
  if (result.slot_names_size() > 0) {
    found->second.slot_names.assign(result.slot_names().begin(), result.slot_names().end());
  }
  return found->second.waiting.empty();
}

void CheckpointPlan::AddFiles(uint64_t cut, CheckpointManifest* manifest) const {
  const Begun& begun = begun_.at(cut);
  CHECK(begun.waiting.empty());
  for (const auto& [ps_index, files] : begun.files) {
    for (const CheckpointFile& file : files) *manifest->add_files() = file;
  }
  manifest->mutable_slot_names()->Assign(begun.slot_names.begin(), begun.slot_names.end());
}

std::vector<std::string> CheckpointPlan::List(uint64_t cut, std::vector<Record>* records) {
  const auto found = begun_.find(cut);
  if (found == begun_.end()) return {};
  CheckpointRecord record;
  record.cut = cut;
  record.epoch = found->second.epoch;
  record.directory = DirectoryOf(record.epoch, cut);
  begun_.erase(found);
  listed_[cut] = record;
  records->push_back(record);
  std::vector<std::string> deleted;
  while (listed_.size() > static_cast<size_t>(std::max(1, options_.max_to_keep))) {
    CheckpointRecord oldest = listed_.begin()->second;
    oldest.state = CheckpointState::kDeleted;
    listed_.erase(listed_.begin());
    records->push_back(oldest);
    deleted.push_back(oldest.directory);
  }
  return deleted;
}

std::string CheckpointPlan::LastDirectory() const { return listed_.empty() ? "" : listed_.rbegin()->second.directory; }

std::vector<std::string> CheckpointPlan::DeletionsToRepeat() const {
  const size_t count = std::min(deleted_.size(), kDeletionsToRepeat);
  return std::vector<std::string>(deleted_.end() - count, deleted_.end());
}

}  // namespace lagrange

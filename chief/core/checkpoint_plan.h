// When a checkpoint is whole, what its manifest says, and which older ones go.
//
// For the chief's core. Caller synchronizes. A checkpoint is begun with an epoch's cut, collects one answer of each ps,
// then its manifest is written by the shell, and only then is it listed (CheckpointRecord). Order of events on the
// disk: files, manifest, record; deletion: record, manifest, files.

#ifndef CHIEF_CORE_CHECKPOINT_PLAN_H_
#define CHIEF_CORE_CHECKPOINT_PLAN_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "chief/core/records.h"
#include "common/batch_cutter.h"
#include "proto/checkpoint.pb.h"
#include "proto/control_plane.pb.h"

namespace lagrange {

// In hex, of names and shapes: two models with the same digest have interchangeable checkpoints.
std::string ModelDigest(absl::Span<const VariableSpec> variables);

// The name of the set field of the job's optimizer: "adam".
std::string OptimizerName(const JobSpec& job);

// Whether a job may start from this checkpoint, as far as the job alone tells; FailedPrecondition names both values.
absl::Status CheckRestore(const RestoreSource& restore, const JobSpec& job);
// The same for what is known once a worker has registered.
absl::Status CheckRestoredModel(const RestoreSource& restore, absl::Span<const VariableSpec> variables,
                                const BatchCutter& cutter);

class CheckpointPlan {
 public:
  struct Options {
    std::string job_name;
    // Runs of one job name may share the directory.
    uint64_t run_id = 0;
    // Where all checkpoints go.
    std::string directory;
    int32_t ps_count = 0;
    int32_t max_to_keep = 0;
  };

  CheckpointPlan(const Options& options, const std::map<uint64_t, CheckpointRecord>& listed);

  // The directory of one checkpoint: "<directory>/<job name>-<run id, 16 hex digits>-epoch-00003-cut-4" for epoch 2
  // (people count from 1).
  std::string DirectoryOf(int64_t epoch, uint64_t cut) const;
  // What ps_index writes.
  WriteCheckpoint CommandFor(int64_t epoch, uint64_t cut, int32_t ps_index) const;

  void Begin(int64_t epoch, uint64_t cut);
  // The answer of one ps. True once, when it was the last: the manifest can be written.
  bool FilesWritten(uint64_t cut, int32_t ps_index, const PsCommandResult& result);
  // Adds the files and slots that came in. REQUIRES: FilesWritten has returned true for the cut.
  void AddFiles(uint64_t cut, CheckpointManifest* manifest) const;
  // The manifest is on the disk: lists the checkpoint. Returns the directories to be deleted, whose records are
  // among `records`. Nothing for a cut that isn't begun.
  std::vector<std::string> List(uint64_t cut, std::vector<Record>* records);

  bool IsBegun(uint64_t cut) const { return begun_.count(cut) > 0; }
  int64_t EpochOf(uint64_t cut) const { return begun_.at(cut).epoch; }
  // "" when there is none.
  std::string LastDirectory() const;
  // Directories whose deletion a crash may have cut short.
  std::vector<std::string> DeletionsToRepeat() const;

 private:
  struct Begun {
    int64_t epoch = 0;
    std::set<int32_t> waiting;
    std::map<int32_t, std::vector<CheckpointFile>> files;
    std::vector<std::string> slot_names;
  };

  Options options_;
  std::map<uint64_t, Begun> begun_;
  std::map<uint64_t, CheckpointRecord> listed_;
  // Newest last.
  std::vector<std::string> deleted_;
};

}  // namespace lagrange

#endif  // CHIEF_CORE_CHECKPOINT_PLAN_H_

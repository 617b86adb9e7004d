#include "ps/checkpoint_files.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file_system.h"
#include "common/partition.h"
#include "common/status.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/manifest_file.h"
#include "proto/safetensors.h"

namespace lagrange {
namespace {

constexpr char kMetadataKey[] = "lagrange";
constexpr char kSuffix[] = ".safetensors";

using Shape = std::vector<int64_t>;

// A scalar counts as one row.
int64_t RowCount(const Shape& shape) { return shape.empty() ? 1 : shape[0]; }

// Elements of one row, or InvalidArgument.
absl::StatusOr<int64_t> RowElements(absl::string_view variable, const Shape& shape) {
  VariableSpec spec;
  spec.set_name(std::string(variable));
  for (const int64_t dimension : shape) spec.add_shape(dimension);
  ASSIGN_OR_RETURN(const int64_t elements, ElementCount(spec));
  return elements / RowCount(shape);
}

// Of the tensor that holds rows [row_begin, row_end) of a variable.
Shape RangeShape(const Shape& variable_shape, int64_t row_begin, int64_t row_end) {
  Shape shape = variable_shape;
  if (!shape.empty()) shape[0] = row_end - row_begin;
  return shape;
}

std::string RowsText(int64_t row_begin, int64_t row_end) {
  return absl::StrCat("rows [", row_begin, ", ", row_end, ")");
}

std::string ShapeText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

// `slot` is empty for the parameters.
std::string TensorName(absl::string_view variable, absl::string_view slot, const Shape& variable_shape,
                       int64_t row_begin, int64_t row_end) {
  std::string name(variable);
  if (!slot.empty()) absl::StrAppend(&name, "/", slot);
  if (row_begin != 0 || row_end != RowCount(variable_shape)) absl::StrAppend(&name, "#rows=", row_begin, ":", row_end);
  return name;
}

// ---- writing ----

absl::StatusOr<ShardMetadata> MetadataOf(absl::Span<const ShardSnapshot> shards) {
  ShardMetadata metadata;
  for (const ShardSnapshot& shard : shards) {
    if (shard.slots.size() != shard.slot_names.size() || shard.slot_names != shards[0].slot_names) {
      return absl::InvalidArgumentError(absl::StrCat("shard ", shard.shard, " of ", shard.variable, " has the slots (",
                                                     absl::StrJoin(shard.slot_names, ", "), "), expected (",
                                                     absl::StrJoin(shards[0].slot_names, ", "), ")"));
    }
    ShardEntry* entry = metadata.add_shards();
    entry->set_variable(shard.variable);
    entry->set_row_begin(shard.row_begin);
    entry->set_row_end(shard.row_end);
    entry->set_version(shard.version);
    *entry->mutable_dedupe() = shard.dedupe;
  }
  if (!shards.empty()) {
    metadata.mutable_slot_names()->Assign(shards[0].slot_names.begin(), shards[0].slot_names.end());
  }
  return metadata;
}

void AddTensors(const ShardSnapshot& shard, std::vector<TensorSource>* tensors) {
  const Shape shape = RangeShape(shard.variable_shape, shard.row_begin, shard.row_end);
  const auto add = [&](absl::string_view slot, const BufferRef& buffer) {
    tensors->push_back(
        FloatTensor(TensorName(shard.variable, slot, shard.variable_shape, shard.row_begin, shard.row_end), shape,
                    buffer ? buffer.values() : absl::Span<const float>()));
  };
  add("", shard.parameters);
  for (size_t i = 0; i < shard.slots.size(); ++i) add(shard.slot_names[i], shard.slots[i]);
}

// ---- reading ----

// A range of rows that a file holds.
struct StoredRange {
  const SafetensorsFile* file = nullptr;
  ShardEntry entry;
};

// All files of a checkpoint, verified.
struct Checkpoint {
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::vector<std::string> slot_names;
  std::map<std::string, Shape> shapes;
  // Of each variable, by rows, without overlap.
  std::map<std::string, std::vector<StoredRange>> ranges;
};

// The same state written in the same way: sorted, intervals that touch joined.
DedupeRecord Canonical(const DedupeRecord& record) {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  for (const LeaseInterval& interval : record.retired()) {
    if (interval.begin() < interval.end()) intervals.emplace_back(interval.begin(), interval.end());
  }
  std::sort(intervals.begin(), intervals.end());
  DedupeRecord canonical;
  for (const auto& [begin, end] : intervals) {
    const int last = canonical.retired_size() - 1;
    if (last >= 0 && begin <= canonical.retired(last).end()) {
      canonical.mutable_retired(last)->set_end(std::max(end, canonical.retired(last).end()));
      continue;
    }
    LeaseInterval* interval = canonical.add_retired();
    interval->set_begin(begin);
    interval->set_end(end);
  }
  std::map<int64_t, std::vector<int32_t>> open;
  for (const LeaseBitmap& bitmap : record.open()) {
    std::vector<int32_t>& batches = open[bitmap.lease_number()];
    batches.insert(batches.end(), bitmap.applied_batches().begin(), bitmap.applied_batches().end());
  }
  for (auto& [lease, batches] : open) {
    // A lease nothing of which was applied says no more than one that isn't there.
    if (batches.empty()) continue;
    std::sort(batches.begin(), batches.end());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    LeaseBitmap* bitmap = canonical.add_open();
    bitmap->set_lease_number(lease);
    bitmap->mutable_applied_batches()->Assign(batches.begin(), batches.end());
  }
  return canonical;
}

absl::StatusOr<ShardMetadata> ReadMetadata(const SafetensorsFile& file) {
  const auto found = file.header().metadata.find(kMetadataKey);
  if (found == file.header().metadata.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": __metadata__ has no \"", kMetadataKey, "\": not a file of a checkpoint"));
  }
  ShardMetadata metadata;
  const auto parsed = google::protobuf::util::JsonStringToMessage(found->second, &metadata);
  if (!parsed.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": __metadata__ \"", kMetadataKey, "\": ", std::string(parsed.message())));
  }
  return metadata;
}

// Checks that the file holds what its metadata says of one range, and files it under its variable.
absl::Status AddRange(const SafetensorsFile& file, const ShardEntry& entry, Checkpoint* checkpoint) {
  const auto variable = checkpoint->shapes.find(entry.variable());
  if (variable == checkpoint->shapes.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": holds variable ", entry.variable(), ", which the manifest doesn't list"));
  }
  const Shape& shape = variable->second;
  const std::string rows = RowsText(entry.row_begin(), entry.row_end());
  if (entry.row_begin() < 0 || entry.row_begin() >= entry.row_end() || entry.row_end() > RowCount(shape)) {
    return absl::FailedPreconditionError(
        absl::StrCat(file.path(), ": ", rows, " of ", entry.variable(), ", whose shape is ", ShapeText(shape)));
  }
  const Shape expected = RangeShape(shape, entry.row_begin(), entry.row_end());
  std::vector<std::string> slots = {""};
  slots.insert(slots.end(), checkpoint->slot_names.begin(), checkpoint->slot_names.end());
  for (const std::string& slot : slots) {
    const std::string name = TensorName(entry.variable(), slot, shape, entry.row_begin(), entry.row_end());
    const TensorEntry* tensor = file.Find(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(absl::StrCat(file.path(), ": tensor ", name, " is missing"));
    }
    if (tensor->type != TensorType::kF32 || tensor->shape != expected) {
      return absl::FailedPreconditionError(absl::StrCat(file.path(), ": tensor ", name, " is ",
                                                        TensorTypeName(tensor->type), " ", ShapeText(tensor->shape),
                                                        ", expected F32 ", ShapeText(expected)));
    }
  }
  checkpoint->ranges[entry.variable()].push_back({&file, entry});
  return absl::OkStatus();
}

absl::Status AddFile(std::unique_ptr<SafetensorsFile> file, Checkpoint* checkpoint) {
  ASSIGN_OR_RETURN(const ShardMetadata metadata, ReadMetadata(*file));
  checkpoint->files.push_back(std::move(file));
  const SafetensorsFile& added = *checkpoint->files.back();
  // The file of a ps that owns nothing doesn't know the optimizer.
  if (metadata.shards().empty()) return absl::OkStatus();
  const std::vector<std::string> slot_names(metadata.slot_names().begin(), metadata.slot_names().end());
  if (checkpoint->ranges.empty() && checkpoint->slot_names.empty()) checkpoint->slot_names = slot_names;
  if (slot_names != checkpoint->slot_names) {
    return absl::FailedPreconditionError(absl::StrCat(added.path(), ": has the slots (",
                                                      absl::StrJoin(slot_names, ", "), "), expected (",
                                                      absl::StrJoin(checkpoint->slot_names, ", "), ")"));
  }
  for (const ShardEntry& entry : metadata.shards()) RETURN_IF_ERROR(AddRange(added, entry, checkpoint));
  return absl::OkStatus();
}

// Sorts the ranges of each variable; rows that are stored twice could differ, so they are refused.
absl::Status SortRanges(Checkpoint* checkpoint) {
  for (auto& [variable, ranges] : checkpoint->ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const StoredRange& a, const StoredRange& b) { return a.entry.row_begin() < b.entry.row_begin(); });
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].entry.row_begin() < ranges[i - 1].entry.row_end()) {
        return absl::FailedPreconditionError(absl::StrCat("row ", ranges[i].entry.row_begin(), " of ", variable,
                                                          " is both in ", ranges[i - 1].file->path(), " and in ",
                                                          ranges[i].file->path()));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const RestoreSource& source) {
  RETURN_IF_ERROR(ValidateManifest(source.directory(), source.manifest()));
  RETURN_IF_ERROR(VerifyCheckpointFiles(source.directory(), source.manifest(), FileCheck::kSizesAndChecksums));
  Checkpoint checkpoint;
  checkpoint.slot_names.assign(source.manifest().slot_names().begin(), source.manifest().slot_names().end());
  for (const VariableEntry& variable : source.manifest().variables()) {
    checkpoint.shapes[variable.name()] = Shape(variable.shape().begin(), variable.shape().end());
  }
  for (const CheckpointFile& file : source.manifest().files()) {
    ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> opened,
                     SafetensorsFile::Open(JoinPath(source.directory(), file.name())));
    RETURN_IF_ERROR(AddFile(std::move(opened), &checkpoint));
  }
  RETURN_IF_ERROR(SortRanges(&checkpoint));
  return checkpoint;
}

// The stored ranges that hold the wanted rows, in order.
absl::StatusOr<std::vector<StoredRange>> RangesOf(const RestoreSource& source, const Checkpoint& checkpoint,
                                                  const WantedShard& wanted) {
  std::vector<StoredRange> pieces;
  int64_t row = wanted.row_begin;
  const auto stored = checkpoint.ranges.find(wanted.variable);
  if (stored != checkpoint.ranges.end()) {
    for (const StoredRange& range : stored->second) {
      if (range.entry.row_end() <= row || range.entry.row_begin() > row || row >= wanted.row_end) continue;
      pieces.push_back(range);
      row = range.entry.row_end();
    }
  }
  if (row < wanted.row_end) {
    return absl::NotFoundError(
        absl::StrCat(source.directory(), ": no file holds row ", row, " of variable ", wanted.variable));
  }
  return pieces;
}

absl::Status CheckPiecesAgree(absl::Span<const StoredRange> pieces, const WantedShard& wanted) {
  const ShardEntry& first = pieces[0].entry;
  const DedupeRecord canonical = Canonical(first.dedupe());
  for (const StoredRange& piece : pieces.subspan(1)) {
    const char* what = nullptr;
    if (piece.entry.version() != first.version()) what = "have another version";
    if (!google::protobuf::util::MessageDifferencer::Equals(Canonical(piece.entry.dedupe()), canonical)) {
      what = "have applied other batches";
    }
    if (what == nullptr) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        RowsText(wanted.row_begin, wanted.row_end), " of ", wanted.variable,
        " can't be one shard: ", RowsText(piece.entry.row_begin(), piece.entry.row_end()), " in ", piece.file->path(),
        " ", what, " than ", RowsText(first.row_begin(), first.row_end()), " in ", pieces[0].file->path(),
        ": the checkpoint was made amid an epoch; restore it with the shard_bytes that it was written with"));
  }
  return absl::OkStatus();
}

// Copies one tensor's wanted rows out of all pieces. `slot` is empty for the parameters.
absl::StatusOr<BufferRef> ReadRows(absl::Span<const StoredRange> pieces, const WantedShard& wanted,
                                   absl::string_view slot, int64_t row_elements) {
  const int64_t elements = (wanted.row_end - wanted.row_begin) * row_elements;
  BufferRef buffer = BufferRef::Allocate(elements);
  if (!buffer) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", elements, " elements of ", wanted.variable));
  }
  const absl::Span<float> values = buffer.MutableValues();
  for (const StoredRange& piece : pieces) {
    const ShardEntry& entry = piece.entry;
    const int64_t begin = std::max(entry.row_begin(), wanted.row_begin);
    const int64_t end = std::min(entry.row_end(), wanted.row_end);
    const std::string name =
        TensorName(wanted.variable, slot, wanted.variable_shape, entry.row_begin(), entry.row_end());
    // AddRange found it, with this shape.
    const TensorEntry* tensor = piece.file->Find(name);
    if (tensor == nullptr) return absl::NotFoundError(absl::StrCat(piece.file->path(), ": no tensor ", name));
    RETURN_IF_ERROR(piece.file->ReadFloats(
        *tensor, (begin - entry.row_begin()) * row_elements,
        values.subspan((begin - wanted.row_begin) * row_elements, (end - begin) * row_elements)));
  }
  return buffer;
}

absl::StatusOr<ShardSnapshot> ReadShard(const RestoreSource& source, const Checkpoint& checkpoint,
                                        const WantedShard& wanted) {
  const auto shape = checkpoint.shapes.find(wanted.variable);
  if (shape == checkpoint.shapes.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat(source.directory(), ": the checkpoint has no variable ", wanted.variable));
  }
  if (shape->second != wanted.variable_shape) {
    return absl::FailedPreconditionError(absl::StrCat(source.directory(), ": variable ", wanted.variable, " is ",
                                                      ShapeText(shape->second), " in the checkpoint and ",
                                                      ShapeText(wanted.variable_shape), " in the model"));
  }
  if (wanted.row_begin < 0 || wanted.row_begin >= wanted.row_end || wanted.row_end > RowCount(shape->second)) {
    return absl::InvalidArgumentError(absl::StrCat("shard ", wanted.shard, ": ",
                                                   RowsText(wanted.row_begin, wanted.row_end), " of ", wanted.variable,
                                                   ", whose shape is ", ShapeText(shape->second)));
  }
  ASSIGN_OR_RETURN(const int64_t row_elements, RowElements(wanted.variable, wanted.variable_shape));
  ASSIGN_OR_RETURN(const std::vector<StoredRange> pieces, RangesOf(source, checkpoint, wanted));
  RETURN_IF_ERROR(CheckPiecesAgree(pieces, wanted));
  ShardSnapshot snapshot;
  snapshot.shard = wanted.shard;
  snapshot.variable = wanted.variable;
  snapshot.variable_shape = wanted.variable_shape;
  snapshot.row_begin = wanted.row_begin;
  snapshot.row_end = wanted.row_end;
  snapshot.version = pieces[0].entry.version();
  snapshot.dedupe = Canonical(pieces[0].entry.dedupe());
  snapshot.slot_names = checkpoint.slot_names;
  ASSIGN_OR_RETURN(snapshot.parameters, ReadRows(pieces, wanted, "", row_elements));
  for (const std::string& slot : checkpoint.slot_names) {
    ASSIGN_OR_RETURN(BufferRef values, ReadRows(pieces, wanted, slot, row_elements));
    snapshot.slots.push_back(std::move(values));
  }
  return snapshot;
}

}  // namespace

std::string CheckpointFileName(const CheckpointFileIdentity& identity) {
  return absl::StrCat(identity.stem, ".c", identity.cut, ".g", identity.generation, ".i", identity.incarnation,
                      kSuffix);
}

absl::StatusOr<CheckpointFile> WriteShardsFile(const std::string& directory, const CheckpointFileIdentity& identity,
                                               absl::Span<const ShardSnapshot> shards) {
  if (identity.stem.empty() || identity.stem[0] == '.' || identity.stem.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("file_stem \"", identity.stem, "\": expected a plain name such as ps-00000-of-00002"));
  }
  ASSIGN_OR_RETURN(const ShardMetadata metadata, MetadataOf(shards));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(metadata, &json, options);
  if (!printed.ok())
    return absl::InternalError(absl::StrCat("ShardMetadata as JSON: ", std::string(printed.message())));
  std::vector<TensorSource> tensors;
  for (const ShardSnapshot& shard : shards) AddTensors(shard, &tensors);
  const std::string name = CheckpointFileName(identity);
  ASSIGN_OR_RETURN(const WrittenFile written,
                   WriteSafetensors(JoinPath(directory, name), {{kMetadataKey, json}}, std::move(tensors)));
  CheckpointFile file;
  file.set_name(name);
  file.set_size_bytes(written.size_bytes);
  file.set_crc32c(written.crc32c);
  return file;
}

absl::StatusOr<std::vector<WantedShard>> ShardsOfPs(const ShardMap& map, int32_t ps_index) {
  RETURN_IF_ERROR(ValidateShardMap(map));
  std::vector<WantedShard> wanted;
  for (const ShardPlacement& placement : map.shards()) {
    if (placement.ps_index() != ps_index) continue;
    const VariableSpec& variable = map.variables(static_cast<int>(placement.variable()));
    wanted.push_back({placement.shard(), variable.name(), Shape(variable.shape().begin(), variable.shape().end()),
                      placement.row_begin(), placement.row_end()});
  }
  return wanted;
}

absl::StatusOr<std::vector<ShardSnapshot>> ReadShards(const RestoreSource& source,
                                                      absl::Span<const WantedShard> wanted) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, OpenCheckpoint(source));
  std::vector<ShardSnapshot> shards;
  for (const WantedShard& shard : wanted) {
    ASSIGN_OR_RETURN(ShardSnapshot snapshot, ReadShard(source, checkpoint, shard));
    shards.push_back(std::move(snapshot));
  }
  return shards;
}

}  // namespace lagrange

#include "ps/core/shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status.h"
#include "kernels/update_rules.h"
#include "ps/core/initializer.h"

namespace lagrange {

namespace {

std::string Describe(const ShardPlacement& placement, const VariableSpec& variable) {
  return absl::StrCat("shard ", placement.shard(), " of ", variable.name());
}

absl::Status NoMemory(const Shard& shard) {
  return absl::ResourceExhaustedError(absl::StrCat("shard ", shard.id(), " of ", shard.variable_name(),
                                                   ": no memory for ", shard.element_count(), " floats"));
}

absl::Status Mismatch(const Shard::Options& options, absl::string_view what, int64_t expected, int64_t got) {
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(options.placement, options.variable), ": ", what, ": expected ", expected, ", got ", got));
}

// Elements of the placement; InvalidArgument when rows and elements don't agree with the variable's shape.
absl::StatusOr<int64_t> CheckPlacement(const Shard::Options& options) {
  const ShardPlacement& placement = options.placement;
  const VariableSpec& variable = options.variable;
  const int64_t rows = variable.shape_size() == 0 ? 1 : variable.shape(0);
  __int128 row_elements = 1;
  for (int i = 1; i < variable.shape_size() && row_elements < (int64_t{1} << 40); ++i)
    row_elements *= variable.shape(i);
  const __int128 begin = row_elements * placement.row_begin();
  const __int128 end = row_elements * placement.row_end();
  if (placement.row_begin() < 0 || placement.row_end() <= placement.row_begin() || placement.row_end() > rows ||
      begin != placement.element_begin() || end != placement.element_end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(placement, variable), ": rows [", placement.row_begin(), ", ", placement.row_end(), "), elements [",
        placement.element_begin(), ", ", placement.element_end(), ") don't fit a variable of ", rows, " rows"));
  }
  return placement.element_end() - placement.element_begin();
}

}  // namespace

Shard::Shard(const Options& options, int64_t element_count)
    : options_(options),
      element_count_(element_count),
      cut_(options.cut),
      pool_(element_count),
      dedupe_(options.batches_per_lease) {}

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(const Options& options) {
  ASSIGN_OR_RETURN(const int64_t count, CheckPlacement(options));
  RETURN_IF_ERROR(ValidateInitializer(options.variable));
  std::unique_ptr<Shard> shard(new Shard(options, count));
  shard->parameters_ = BufferRef::Allocate(count);
  if (!shard->parameters_) return NoMemory(*shard);
  FillInitialValues(options.variable, options.job_seed, options.placement.element_begin(),
                    shard->parameters_.MutableValues());
  for (const SlotSpec& spec : options.optimizer->slots()) {
    BufferRef slot = BufferRef::Allocate(count);
    if (!slot) return NoMemory(*shard);
    const absl::Span<float> values = slot.MutableValues();
    std::fill(values.begin(), values.end(), spec.initial_value);
    shard->slots_.push_back(std::move(slot));
  }
  return shard;
}

absl::StatusOr<std::unique_ptr<Shard>> Shard::Restore(const Options& options, ShardSnapshot snapshot) {
  ASSIGN_OR_RETURN(const int64_t count, CheckPlacement(options));
  const std::string where = Describe(options.placement, options.variable);
  if (snapshot.variable != options.variable.name()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": the checkpoint has ", snapshot.variable, " there"));
  }
  if (snapshot.row_begin != options.placement.row_begin() || snapshot.row_end != options.placement.row_end()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": expected rows [", options.placement.row_begin(), ", ",
                                                   options.placement.row_end(), "), the checkpoint has [",
                                                   snapshot.row_begin, ", ", snapshot.row_end, ")"));
  }
  if (snapshot.parameters.values().size() != count) {
    return Mismatch(options, "elements in the checkpoint", count, snapshot.parameters.values().size());
  }
  const std::vector<SlotSpec>& specs = options.optimizer->slots();
  if (snapshot.slot_names.size() != specs.size() || snapshot.slots.size() != specs.size()) {
    return Mismatch(options, "slots in the checkpoint", specs.size(), snapshot.slots.size());
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    if (snapshot.slot_names[i] != specs[i].name) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": expected the slot ", specs[i].name, ", the checkpoint has ", snapshot.slot_names[i]));
    }
    if (snapshot.slots[i].values().size() != count) {
      return Mismatch(options, absl::StrCat("elements of the slot ", specs[i].name), count,
                      snapshot.slots[i].values().size());
    }
  }
  auto dedupe = Dedupe::FromRecord(snapshot.dedupe, options.batches_per_lease);
  if (!dedupe.ok()) return Annotate(dedupe.status(), where);
  std::unique_ptr<Shard> shard(new Shard(options, count));
  shard->version_ = snapshot.version;
  shard->parameters_ = std::move(snapshot.parameters);
  shard->slots_ = std::move(snapshot.slots);
  shard->dedupe_ = *std::move(dedupe);
  return shard;
}

void Shard::RaiseCut(uint64_t cut) {
  if (cut <= cut_) return;
  if (forks_.size() >= kMaxForks) forks_.erase(forks_.begin());
  forks_.push_back(Fork{cut_ + 1, cut, version_, parameters_, slots_, dedupe_});
  cut_ = cut;
}

absl::Status Shard::CheckPart(const ShardPart& part) const {
  CHECK(part.gradient.size() == element_count_);
  if (part.pulled_version > version_) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(options_.placement, options_.variable),
                                                   ": the gradient is of version ", part.pulled_version,
                                                   ", the shard is at ", version_));
  }
  if (dedupe_.open_count() + pending_count_ >= Dedupe::kMaxOpenLeases && !dedupe_.IsOpen(part.lease_number)) {
    return absl::ResourceExhaustedError(absl::StrCat(Describe(options_.placement, options_.variable), ": more than ",
                                                     Dedupe::kMaxOpenLeases, " open leases"));
  }
  return absl::OkStatus();
}

absl::Status Shard::Update(absl::Span<const float> gradient) {
  std::vector<BufferRef> fresh;
  std::vector<absl::Span<const float>> slots_in;
  std::vector<absl::Span<float>> slots_out;
  // All buffers first, so that a failure changes nothing; index 0 is the parameters.
  const auto writable = [&](BufferRef& current) -> std::optional<absl::Span<float>> {
    fresh.emplace_back();
    if (current.Unique()) return current.MutableValues();
    fresh.back() = pool_.Take();
    if (!fresh.back()) return std::nullopt;
    return fresh.back().MutableValues();
  };
  const auto out = writable(parameters_);
  bool complete = out.has_value();
  for (BufferRef& slot : slots_) {
    if (!complete) break;
    const auto slot_out = writable(slot);
    complete = slot_out.has_value();
    slots_in.push_back(slot.values());
    slots_out.push_back(slot_out.value_or(absl::Span<float>()));
  }
  if (!complete) return NoMemory(*this);
  options_.optimizer->Apply(version_ + 1, {gradient, parameters_.values(), *out, slots_in, slots_out});
  for (size_t i = 0; i < fresh.size(); ++i) {
    if (!fresh[i]) continue;
    BufferRef& current = i == 0 ? parameters_ : slots_[i - 1];
    pool_.Give(std::exchange(current, std::move(fresh[i])));
  }
  ++version_;
  return absl::OkStatus();
}

absl::StatusOr<ShardOutcome> Shard::Apply(const ShardPart& part) {
  if (dedupe_.Contains(part.lease_number, part.batch)) return DUPLICATE;
  RETURN_IF_ERROR(CheckPart(part));
  const uint64_t staleness = version_ - part.pulled_version;
  RETURN_IF_ERROR(Update(part.gradient));
  dedupe_.Add(part.lease_number, part.batch);
  staleness_.AddVersions(part.epoch, static_cast<int64_t>(staleness));
  return APPLIED;
}

absl::StatusOr<ShardOutcome> Shard::Contribute(const ShardPart& part) {
  if (dedupe_.Contains(part.lease_number, part.batch)) return DUPLICATE;
  if (part.round <= closed_round_) return LATE;
  const LeaseBatch key(part.lease_number, part.batch);
  for (const auto& [number, round] : rounds_) {
    const auto pending = round.pending.find(key);
    if (pending == round.pending.end()) continue;
    return number == part.round && pending->second == part.incarnation ? APPLIED : DUPLICATE;
  }
  RETURN_IF_ERROR(CheckPart(part));
  const auto found = rounds_.find(part.round);
  if (found == rounds_.end() && rounds_.size() >= kMaxOpenRounds) {
    return absl::ResourceExhaustedError(absl::StrCat(Describe(options_.placement, options_.variable), ": round ",
                                                     part.round, " would be open beside ", kMaxOpenRounds, " others"));
  }
  if (found != rounds_.end() && found->second.pending.size() >= kMaxPendingKeys) {
    return absl::ResourceExhaustedError(absl::StrCat(Describe(options_.placement, options_.variable), ": round ",
                                                     part.round, " has ", kMaxPendingKeys, " contributions"));
  }
  OpenRound fresh;
  RETURN_IF_ERROR(Accumulate(part, found == rounds_.end() ? &fresh : &found->second));
  OpenRound& round =
      found == rounds_.end() ? rounds_.emplace(part.round, std::move(fresh)).first->second : found->second;
  round.pending.emplace(key, part.incarnation);
  ++pending_count_;
  staleness_.AddVersions(part.epoch, static_cast<int64_t>(version_ - part.pulled_version));
  return APPLIED;
}

absl::Status Shard::Accumulate(const ShardPart& part, OpenRound* round) {
  const int64_t total = round->example_count + part.example_count;
  if (!round->mean) {
    round->mean = pool_.Take();
    if (!round->mean) return NoMemory(*this);
    std::copy(part.gradient.begin(), part.gradient.end(), round->mean.MutableValues().begin());
  } else {
    const double share = static_cast<double>(part.example_count) / static_cast<double>(total);
    kernels::Blend(element_count_, static_cast<float>(1.0 - share), static_cast<float>(share), part.gradient.data(),
                   round->mean.MutableValues().data());
  }
  round->example_count = total;
  return absl::OkStatus();
}

absl::Status Shard::CloseRounds(int64_t round) {
  while (!rounds_.empty() && rounds_.begin()->first <= round) {
    OpenRound& closing = rounds_.begin()->second;
    RETURN_IF_ERROR(Update(closing.mean.values()));
    for (const auto& [key, incarnation] : closing.pending) dedupe_.Add(key.first, key.second);
    pending_count_ -= closing.pending.size();
    pool_.Give(std::move(closing.mean));
    closed_round_ = rounds_.begin()->first;
    rounds_.erase(rounds_.begin());
  }
  closed_round_ = std::max(closed_round_, round);
  return absl::OkStatus();
}

ShardSnapshot Shard::MakeSnapshot(uint64_t version, const BufferRef& parameters, const std::vector<BufferRef>& slots,
                                  const Dedupe& dedupe) const {
  ShardSnapshot snapshot;
  snapshot.shard = id();
  snapshot.variable = variable_name();
  snapshot.variable_shape.assign(options_.variable.shape().begin(), options_.variable.shape().end());
  snapshot.row_begin = options_.placement.row_begin();
  snapshot.row_end = options_.placement.row_end();
  snapshot.version = version;
  snapshot.parameters = parameters;
  for (const SlotSpec& spec : options_.optimizer->slots()) snapshot.slot_names.push_back(spec.name);
  snapshot.slots = slots;
  snapshot.dedupe = dedupe.ToRecord();
  return snapshot;
}

ShardSnapshot Shard::Snapshot() const { return MakeSnapshot(version_, parameters_, slots_, dedupe_); }

std::optional<ShardSnapshot> Shard::ForkOf(uint64_t cut) const {
  for (const Fork& fork : forks_) {
    if (fork.first_cut <= cut && cut <= fork.last_cut) {
      return MakeSnapshot(fork.version, fork.parameters, fork.slots, fork.dedupe);
    }
  }
  return std::nullopt;
}

void Shard::ReleaseForks(uint64_t cut) {
  const auto released = [cut](const Fork& fork) { return fork.last_cut <= cut; };
  forks_.erase(std::remove_if(forks_.begin(), forks_.end(), released), forks_.end());
}

}  // namespace lagrange

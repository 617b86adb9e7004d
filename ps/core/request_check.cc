#include "ps/core/request_check.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/version.h"

namespace lagrange {

Refusal CheckFences(const RequestHeader& header, const PsIdentity& ps) {
  if (header.protocol_version() != kProtocolVersion) {
    return {REFUSED, absl::StrCat("the request speaks protocol ", header.protocol_version(), ", this ps protocol ",
                                  kProtocolVersion)};
  }
  if (header.generation() < ps.generation || header.term() < ps.term) {
    return {STALE_GENERATION,
            absl::StrCat("the request is of generation ", header.generation(), ", term ", header.term(),
                         "; this ps is at generation ", ps.generation, ", term ", ps.term)};
  }
  if (!ps.installed) return {UNAVAILABLE, "no shards are installed yet"};
  if (header.generation() > ps.generation) {
    return {UNAVAILABLE,
            absl::StrCat("generation ", header.generation(), " isn't loaded yet; this ps is at ", ps.generation)};
  }
  if (header.map_version() != ps.map_version) {
    return {STALE_MAP,
            absl::StrCat("the request uses shard map ", header.map_version(), ", this ps has ", ps.map_version)};
  }
  return {};
}

Refusal CheckClocks(const RequestHeader& header) {
  const int64_t clock = header.clock();
  if (clock < 0 || clock > kMaxClock) {
    return {REFUSED, absl::StrCat("clock: expected 0 to ", kMaxClock, ", got ", clock)};
  }
  // One ahead is a pull prefetched during the step before.
  if (header.step_clock() < 0 || header.step_clock() > clock + 1) {
    return {REFUSED, absl::StrCat("step_clock: expected 0 to ", clock + 1, ", got ", header.step_clock())};
  }
  return {};
}

Refusal CheckPush(const RequestHeader& header, const LeaseTable& leases, uint64_t cut) {
  if (const absl::Status status = leases.CheckKey(header.key()); !status.ok()) {
    return {REFUSED, std::string(status.message())};
  }
  constexpr int64_t kMaxExamples = std::numeric_limits<int32_t>::max();
  if (header.example_count() < 1 || header.example_count() > kMaxExamples) {
    return {REFUSED, absl::StrCat("example_count: expected 1 to ", kMaxExamples, ", got ", header.example_count())};
  }
  if (header.cut() > cut && header.cut() - cut > kMaxCutStep) {
    return {REFUSED, absl::StrCat("the push is stamped with cut ", header.cut(), ", this ps is at ", cut)};
  }
  return {};
}

Refusal Fenced(const RequestHeader& header) {
  return {FENCED, absl::StrCat("incarnation ", header.incarnation(), " isn't in the clock table")};
}

ReplyHeader MakeReply(const Refusal& refusal, const PsIdentity& ps, uint64_t cut) {
  ReplyHeader reply;
  reply.set_code(refusal.code);
  reply.set_message(refusal.message);
  reply.set_term(ps.term);
  reply.set_generation(ps.generation);
  reply.set_map_version(ps.map_version);
  reply.set_cut(cut);
  return reply;
}

}  // namespace lagrange

// How the ledger's file names the states of records.
//
// Thread-safe: pure functions.

#ifndef CHIEF_RECORD_NAMES_H_
#define CHIEF_RECORD_NAMES_H_

#include "absl/strings/string_view.h"
#include "chief/core/records.h"

namespace lagrange {

inline absl::string_view NameOf(MemberState state) {
  switch (state) {
    case MemberState::kLive:
      return "live";
    case MemberState::kLeft:
      return "left";
    case MemberState::kEvicted:
      break;
  }
  return "evicted";
}

inline absl::string_view NameOf(BatchState state) { return state == BatchState::kDone ? "done" : "skipped"; }

inline absl::string_view NameOf(CheckpointState state) {
  return state == CheckpointState::kListed ? "listed" : "deleted";
}

}  // namespace lagrange

#endif  // CHIEF_RECORD_NAMES_H_

// absl::Mutex as ThreadSanitizer should see it. Debian's libabsl is not instrumented, so that each access under one of
// its locks would be reported as a race. These definitions come before the library's, call them and tell of the order
// that they make. A condition of Await may be evaluated by whoever unlocks: what it reads then is not looked at.

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}

namespace absl {
namespace {

// Calls the library's function of that mangled name on `object`.
template <typename Result, typename... Arguments>
Result CallLibrary(const char* symbol, void* object, Arguments... arguments) {
  auto function = reinterpret_cast<Result (*)(void*, Arguments...)>(dlsym(RTLD_NEXT, symbol));
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  struct End {
    ~End() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
  } end;
  return function(object, arguments...);
}

// Debian's inline namespace is part of each name.
#define ABSL_SYMBOL(rest) "_ZN4absl7debian3" rest

}  // namespace

void Mutex::Lock() {
  CallLibrary<void>(ABSL_SYMBOL("5Mutex4LockEv"), this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  __tsan_release(this);
  CallLibrary<void>(ABSL_SYMBOL("5Mutex6UnlockEv"), this);
}

void Mutex::ReaderLock() {
  CallLibrary<void>(ABSL_SYMBOL("5Mutex10ReaderLockEv"), this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  __tsan_release(this);
  CallLibrary<void>(ABSL_SYMBOL("5Mutex12ReaderUnlockEv"), this);
}

void Mutex::Await(const Condition& condition) {
  __tsan_release(this);
  CallLibrary<void, const Condition&>(ABSL_SYMBOL("5Mutex5AwaitERKNS0_9ConditionE"), this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  __tsan_release(this);
  const bool met = CallLibrary<bool, const Condition&, Duration>(
      ABSL_SYMBOL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"), this, condition, timeout);
  __tsan_acquire(this);
  return met;
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  __tsan_release(this);
  const bool met = CallLibrary<bool, const Condition&, Time>(
      ABSL_SYMBOL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"), this, condition, deadline);
  __tsan_acquire(this);
  return met;
}

}  // namespace absl

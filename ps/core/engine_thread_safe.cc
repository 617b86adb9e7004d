#include "absl/synchronization/mutex.h"
#include "ps/core/engine_impl.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace lagrange {

namespace {

#ifdef __SANITIZE_THREAD__
// Debian's libabsl isn't instrumented, so ThreadSanitizer would not see that its mutex orders anything.
class ABSL_LOCKABLE EngineMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    __tsan_acquire(this);
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    __tsan_release(this);
    mutex_.Unlock();
  }

 private:
  absl::Mutex mutex_;
};
#else
using EngineMutex = absl::Mutex;
#endif

}  // namespace

std::unique_ptr<Engine> NewThreadSafeEngine(const EngineOptions& options) {
  return std::make_unique<EngineImpl<EngineMutex>>(options);
}

}  // namespace lagrange

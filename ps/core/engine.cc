#include "ps/core/engine_impl.h"

namespace lagrange {

std::unique_ptr<Engine> NewSingleThreadEngine(const EngineOptions& options) {
  return std::make_unique<EngineImpl<NullMutex>>(options);
}

}  // namespace lagrange

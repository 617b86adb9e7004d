#include "ps/core/buffer.h"

#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "common/check.h"

namespace lagrange {

namespace {

// A cache line, and the widest vector register.
constexpr size_t kAlignment = 64;

}  // namespace

// The head of an allocation; the floats follow, aligned because the head is as large as the alignment.
class alignas(kAlignment) Buffer {
 public:
  explicit Buffer(int64_t count) : count_(count) {}

  float* values() { return reinterpret_cast<float*>(this + 1); }
  int64_t count() const { return count_; }

  void Hold() { holders_.fetch_add(1, std::memory_order_relaxed); }
  // True when that was the last holder. Releases its reads to whoever writes or frees next.
  bool LetGo() { return holders_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
  bool HasOneHolder() const { return holders_.load(std::memory_order_acquire) == 1; }

 private:
  std::atomic<int64_t> holders_{1};
  const int64_t count_;
};

static_assert(sizeof(Buffer) == kAlignment, "the floats must begin on the alignment");

BufferRef::BufferRef(const BufferRef& other) : buffer_(other.buffer_) {
  if (buffer_ != nullptr) buffer_->Hold();
}

BufferRef::BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}

BufferRef& BufferRef::operator=(BufferRef other) noexcept {
  std::swap(buffer_, other.buffer_);
  return *this;
}

BufferRef::~BufferRef() {
  if (buffer_ == nullptr || !buffer_->LetGo()) return;
  buffer_->~Buffer();
  ::operator delete (buffer_, std::align_val_t{kAlignment});
}

absl::Span<const float> BufferRef::values() const {
  if (buffer_ == nullptr) return {};
  return {buffer_->values(), static_cast<size_t>(buffer_->count())};
}

bool BufferRef::Unique() const { return buffer_ != nullptr && buffer_->HasOneHolder(); }

absl::Span<float> BufferRef::MutableValues() {
  CHECK(Unique());
  return {buffer_->values(), static_cast<size_t>(buffer_->count())};
}

BufferRef BufferRef::Allocate(int64_t count) {
  constexpr int64_t kMaxCount = (std::numeric_limits<int64_t>::max() - sizeof(Buffer)) / sizeof(float);
  if (count < 0 || count > kMaxCount) return BufferRef();
  const size_t bytes = sizeof(Buffer) + static_cast<size_t>(count) * sizeof(float);
  void* memory = ::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) return BufferRef();
  return BufferRef(new (memory) Buffer(count));
}

BufferRef BufferPool::Take() {
  for (BufferRef& spare : spares_) {
    if (!spare.Unique()) continue;
    BufferRef taken = std::move(spare);
    spare = std::move(spares_.back());
    spares_.pop_back();
    return taken;
  }
  return BufferRef::Allocate(count_);
}

void BufferPool::Give(BufferRef buffer) {
  if (spares_.size() < kSpares) spares_.push_back(std::move(buffer));
}

}  // namespace lagrange

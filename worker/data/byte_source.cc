#include "worker/data/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/file_system.h"
#include "common/status.h"

namespace lagrange {
namespace {

// Large enough that the calls cost nothing beside inflate.
constexpr int64_t kChunkBytes = 64 * 1024;

// Fills out from a file's offset; fewer bytes only at the file's end.
absl::StatusOr<int64_t> ReadUpTo(const InputFile& file, int64_t offset, absl::Span<uint8_t> out) {
  const int64_t count = std::min<int64_t>(static_cast<int64_t>(out.size()), file.size_bytes() - offset);
  RETURN_IF_ERROR(file.ReadAt(offset, absl::MakeSpan(reinterpret_cast<char*>(out.data()), count)));
  return count;
}

class PlainSource : public ByteSource {
 public:
  PlainSource(const std::string& path, InputFile file) : ByteSource(path), file_(std::move(file)) {}

  std::optional<int64_t> size_bytes() const override { return file_.size_bytes(); }

  absl::StatusOr<int64_t> Read(absl::Span<uint8_t> out) override {
    ASSIGN_OR_RETURN(const int64_t got, ReadUpTo(file_, offset_, out));
    offset_ += got;
    return got;
  }

 private:
  InputFile file_;
  int64_t offset_ = 0;
};

class GzipSource : public ByteSource {
 public:
  GzipSource(const std::string& path, InputFile file) : ByteSource(path), file_(std::move(file)) {}
  ~GzipSource() override {
    if (begun_) inflateEnd(&stream_);
  }

  absl::Status Begin() {
    // 15 bits of window, and 16: gzip's header and trailer, whose checksum zlib verifies.
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) {
      return absl::ResourceExhaustedError(absl::StrCat(path(), ": no memory to decompress gzip"));
    }
    begun_ = true;
    return absl::OkStatus();
  }

  std::optional<int64_t> size_bytes() const override { return std::nullopt; }

  absl::StatusOr<int64_t> Read(absl::Span<uint8_t> out) override {
    int64_t done = 0;
    while (done < static_cast<int64_t>(out.size()) && !ended_) {
      if (stream_.avail_in == 0) RETURN_IF_ERROR(Refill());
      // zlib counts in unsigned int.
      const int64_t room = std::min<int64_t>(static_cast<int64_t>(out.size()) - done, 1 << 30);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<unsigned int>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (result == Z_STREAM_END) {
        ended_ = true;
        RETURN_IF_ERROR(CheckNothingFollows());
      } else if (result == Z_MEM_ERROR) {
        return absl::ResourceExhaustedError(absl::StrCat(path(), ": no memory to decompress gzip"));
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return absl::InvalidArgumentError(absl::StrCat(path(), ": gzip is damaged at or before compressed byte ",
                                                       consumed_bytes(), ": ",
                                                       stream_.msg == nullptr ? "it needs a dictionary" : stream_.msg));
      }
    }
    return done;
  }

 private:
  // Compressed bytes that inflate has taken.
  int64_t consumed_bytes() const { return offset_ - stream_.avail_in; }

  absl::Status Refill() {
    ASSIGN_OR_RETURN(const int64_t got, ReadUpTo(file_, offset_, absl::MakeSpan(input_)));
    if (got == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path(), ": gzip is cut short: the file ends at byte ", offset_,
                                                     ", expected more compressed data"));
    }
    offset_ += got;
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<unsigned int>(got);
    return absl::OkStatus();
  }

  absl::Status CheckNothingFollows() const {
    const int64_t following = file_.size_bytes() - consumed_bytes();
    if (following <= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path(), ": gzip ends at byte ", consumed_bytes(),
                                                   ", but the file has ", following, " more, expected none"));
  }

  InputFile file_;
  // Compressed bytes read from the file.
  int64_t offset_ = 0;
  std::array<uint8_t, kChunkBytes> input_;
  z_stream stream_ = {};
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::Open(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::array<uint8_t, 2> beginning = {};
  ASSIGN_OR_RETURN(const int64_t got, ReadUpTo(file, 0, absl::MakeSpan(beginning)));
  if (got == 2 && beginning[0] == 0x1f && beginning[1] == 0x8b) {
    auto gzip = std::make_unique<GzipSource>(path, std::move(file));
    RETURN_IF_ERROR(gzip->Begin());
    return gzip;
  }
  return std::make_unique<PlainSource>(path, std::move(file));
}

}  // namespace lagrange

#include "common/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace lagrange {
namespace {

TEST(Crc32c, OfNothingIsZero) { EXPECT_EQ(Crc32c({}), 0u); }

// The check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32c, OfTheCheckString) { EXPECT_EQ(Crc32c(std::string("123456789")), 0xe3069283u); }

// RFC 3720, B.4.
TEST(Crc32c, Of32Zeros) { EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau); }
TEST(Crc32c, Of32Ones) { EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u); }

TEST(Crc32c, ContinuesOverPieces) {
  const std::string data = "123456789";
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    EXPECT_EQ(Crc32c(data.substr(cut), Crc32c(data.substr(0, cut))), 0xe3069283u);
  }
}

}  // namespace
}  // namespace lagrange

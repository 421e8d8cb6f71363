// memcpy and its kin of src/libc/bytes.cpp, under names of their own, beside the C library's.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

// NOLINTBEGIN(readability-identifier-naming)
extern "C" {
void* own_memmove(void*, const void*, std::size_t);
void* own_memcpy(void*, const void*, std::size_t);
void* own_memset(void*, int, std::size_t);
int own_memcmp(const void*, const void*, std::size_t);
void* own_memchr(const void*, int, std::size_t);
std::size_t own_strlen(const char*);
std::size_t own_strnlen(const char*, std::size_t);
int own_strcmp(const char*, const char*);
char* own_strchr(const char*, int);
char* own_strstr(const char*, const char*);
}
// NOLINTEND(readability-identifier-naming)

namespace {

constexpr std::size_t kRoom = 16384;
constexpr std::size_t kMostShift = 150;

// Lengths around those where another way is taken, and long ones.
std::size_t any_length(std::mt19937& random) {
  const bool is_long = random() % 4 == 0;
  return random() % (is_long ? 9000 : 300);
}
std::string noise(std::mt19937& random, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (char& each : text) each = static_cast<char>(random());
  return text;
}

TEST(Bytes, MoveAsTheCLibraryDoes) {
  std::mt19937 random{1};
  std::string ours = noise(random, kRoom);
  std::string theirs = ours;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = any_length(random);
    const std::size_t from = kMostShift + random() % 4000;
    const std::size_t to = from - kMostShift + random() % (2 * kMostShift);
    EXPECT_EQ(own_memmove(&ours[to], &ours[from], bytes), &ours[to]);
    std::memmove(&theirs[to], &theirs[from], bytes);
    ASSERT_EQ(ours, theirs) << bytes << " bytes from " << from << " to " << to;
  }
  own_memcpy(ours.data(), &ours[8000], 5000);
  std::memmove(theirs.data(), &theirs[8000], 5000);
  EXPECT_EQ(ours, theirs);
}

TEST(Bytes, AreSetAsByTheCLibrary) {
  std::mt19937 random{2};
  std::string ours = noise(random, kRoom);
  std::string theirs = ours;
  for (int i = 0; i < 20000; ++i) {
    const std::size_t bytes = any_length(random);
    const std::size_t at = random() % 4000;
    const int byte = static_cast<int>(random());
    EXPECT_EQ(own_memset(&ours[at], byte, bytes), &ours[at]);
    std::memset(&theirs[at], byte, bytes);
    ASSERT_EQ(ours, theirs) << bytes << " bytes at " << at;
  }
}

TEST(Bytes, AreComparedAndFoundAsByTheCLibrary) {
  std::mt19937 random{3};
  for (int i = 0; i < 20000; ++i) {
    const std::string one = noise(random, 1 + random() % 100);
    std::string other = one;
    if (random() % 2 == 0) other[random() % other.size()] ^= static_cast<char>(random());
    const auto sign = [](int result) { return (result > 0) - (result < 0); };
    EXPECT_EQ(sign(own_memcmp(one.data(), other.data(), one.size())),
              sign(std::memcmp(one.data(), other.data(), one.size())));
    EXPECT_EQ(sign(own_strcmp(one.c_str(), other.c_str())),
              sign(std::strcmp(one.c_str(), other.c_str())));
    const int byte = static_cast<unsigned char>(other[0]);
    EXPECT_EQ(own_memchr(one.data(), byte, one.size()), std::memchr(one.data(), byte, one.size()));
    EXPECT_EQ(own_strchr(one.c_str(), byte), std::strchr(one.c_str(), byte));
    const std::string part = one.substr(random() % one.size(), random() % 4);
    EXPECT_EQ(own_strstr(one.c_str(), part.c_str()), std::strstr(one.c_str(), part.c_str()));
  }
}

TEST(Bytes, OfATextAreCountedFromAnyPlace) {
  std::mt19937 random{4};
  for (int i = 0; i < 20000; ++i) {
    const std::string text = noise(random, 1 + random() % 100);
    const char* const begin = text.c_str() + random() % text.size();
    const std::size_t most = random() % 120;
    EXPECT_EQ(own_strlen(begin), std::strlen(begin));
    const std::size_t length = std::strlen(begin);
    EXPECT_EQ(own_strnlen(begin, most), most < length ? most : length);
  }
}

}  // namespace

// The trace format, shared by the recorder and bench/replay. Little-endian; docs/trace-format.md
// explains it with an example.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::record {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline constexpr char kMagic[8] = {'A', 'L', 'L', 'O', 'D', 'T', 'R', 'C'};
// Version 1 differs only in times: they took 1, 2, 4 or 8 bytes.
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint32_t kOldestVersion = 1;
inline constexpr std::uint32_t kChunkMagic = 0x4B4E4843;  // "CHNK"

// Flag of a file: the process began as a fork, so its heap is older than the trace.
inline constexpr std::uint32_t kForked = 1;
// Flags of a chunk: the thread's last, except for frees at its very end; the end of the process;
// the moment before exec.
inline constexpr std::uint32_t kThreadEnded = 1;
inline constexpr std::uint32_t kProcessEnded = 2;
inline constexpr std::uint32_t kExec = 4;

// Followed by the command line as in /proc (each argument ends in a zero byte), the path of the
// recorded allocator, and zeros up to `bytes`, a multiple of 8.
struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t bytes;
  std::uint32_t process;
  std::uint32_t flags;
  std::uint64_t ticks;        // event clock at the start
  std::uint64_t nanoseconds;  // CLOCK_MONOTONIC at the start
  std::uint64_t time;         // CLOCK_REALTIME at the start, in nanoseconds
  std::uint32_t command_bytes;
  std::uint32_t allocator_bytes;
};
static_assert(sizeof(FileHeader) == 56);

// Followed by `bytes` bytes: `events` events of one thread, in order.
struct ChunkHeader {
  std::uint32_t magic;
  std::uint32_t bytes;
  std::uint32_t events;
  std::uint32_t thread;     // counted from 1 in the order of first events
  std::uint32_t kernel_id;  // as in /proc
  std::uint32_t flags;
  std::uint64_t base_ticks;   // base of the first event's time
  std::uint64_t ticks;        // event clock when the chunk was written
  std::uint64_t nanoseconds;  // CLOCK_MONOTONIC at the same time
};
static_assert(sizeof(ChunkHeader) == 48);

enum class Kind : std::uint8_t {
  free = 0,
  malloc = 1,
  calloc = 2,
  aligned = 3,
  realloc = 4,
  new_block = 5,
  delete_block = 6,
};
inline constexpr unsigned kKinds = 7;

// In the last byte of an aligned allocation: it came from operator new. The other bits are log2 of
// the alignment.
inline constexpr std::uint8_t kByOperator = 64;

// Addresses are encoded in units of 8 bytes.
inline constexpr unsigned kAddressShift = 3;

// The first byte: kind, then the code of the time's size, then the number of address bytes.
inline constexpr unsigned kTimeShift = 3;
inline constexpr unsigned kAddressBytesShift = 5;

// A time takes 0, 1, 3 or 7 bytes. With 0 bytes it equals the previous event's.
inline constexpr std::uint64_t kMostTime = (std::uint64_t{1} << 56U) - 1;
[[nodiscard]] constexpr unsigned time_code(std::uint64_t ticks) noexcept {
  return unsigned{ticks > 0} + unsigned{ticks > 0xFFU} + unsigned{ticks > 0xFF'FFFFU};
}
[[nodiscard]] constexpr unsigned time_bytes(unsigned code) noexcept { return (1U << code) - 1; }

// Upper bound: first byte, time of 8 in version 1, address of 7, three numbers of 8.
inline constexpr std::size_t kMostEventBytes = 40;

// Maps small values of either sign to small unsigned values.
[[nodiscard]] constexpr std::uint64_t zigzag(std::uint64_t difference) noexcept {
  return (difference << 1U) ^ (0 - (difference >> 63U));
}
[[nodiscard]] constexpr std::uint64_t unzigzag(std::uint64_t code) noexcept {
  return (code >> 1U) ^ (0 - (code & 1U));
}

// A number takes 1, 2, 4 or 8 bytes. The lowest two bits encode its size, which leaves 62 bits.
inline constexpr std::uint64_t kMostNumber = (std::uint64_t{1} << 62U) - 1;
[[nodiscard]] constexpr unsigned number_code(std::uint64_t value) noexcept {
  return unsigned{value >= (1U << 6U)} + unsigned{value >= (1U << 14U)} +
         unsigned{value >= (1U << 30U)};
}

// Unaligned access to 8 bytes; compiles to one instruction.
[[nodiscard]] inline std::uint64_t load64(const std::uint8_t* at) noexcept {
  std::uint64_t value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}
inline void store64(std::uint8_t* at, std::uint64_t value) noexcept {
  __builtin_memcpy(at, &value, sizeof value);
}

// Advances `at` behind the number, and may touch 8 bytes from its start.
inline void put_number(std::uint8_t*& at, std::uint64_t value) noexcept {
  const unsigned code = number_code(value);
  store64(at, value << 2U | code);
  at += 1U << code;
}
// The same for values below kMostBrief.
inline constexpr std::uint64_t kMostBrief = 1U << 14U;
inline void put_brief(std::uint8_t*& at, std::uint64_t value) noexcept {
  const unsigned code = value >= (1U << 6U) ? 1 : 0;
  store64(at, value << 2U | code);
  at += 1 + code;
}
[[nodiscard]] inline std::uint64_t take_number(const std::uint8_t*& at) noexcept {
  const std::uint64_t word = load64(at);
  const unsigned bytes = 1U << (word & 3U);
  at += bytes;
  return (word << (64 - 8 * bytes)) >> (64 - 8 * bytes + 2);
}

}  // namespace allod::record

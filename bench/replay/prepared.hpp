// The form in which a trace is replayed. Addresses have become slots: places in tables where the
// replay keeps the blocks. Written by prepare.cpp and read by replay.cpp of the same build.
//
// The order of all events is cut into windows. A thread runs events of a window when all threads
// have finished the window before the last. So threads drift no more than two windows apart, as
// the threads of the program did not, and a slot can go from thread to thread without a lock.
#pragma once

#include <cstdint>

namespace replay {

inline constexpr char kPreparedMagic[8] = {'A', 'L', 'L', 'O', 'D', 'R', 'P', '1'};

// So large that the threads seldom wait for each other, and yet not much is allocated in one: a
// sixteenth of the most that was ever live.
inline constexpr std::uint64_t kFewestEventsInWindow = 4096;
inline constexpr std::uint64_t kFewestWindows = 250;
inline constexpr std::uint64_t kWindowsInPeak = 16;
// A slot that is freed in one window can be taken by any thread so many windows later.
inline constexpr std::uint32_t kWindowsApart = 2;

struct PreparedHeader {
  char magic[8];
  std::uint32_t threads;
  std::uint32_t windows;
  std::uint64_t events;
  std::uint64_t shared_slots;
  std::uint64_t peak_live_bytes;
  std::uint64_t chunks;
  std::uint64_t index;  // offset of the threads, then the windows, then the chunks
};

// The first thread is the one that began the program.
struct PreparedThread {
  std::uint64_t own_slots;
  std::uint64_t first_chunk;
  std::uint32_t chunks;
  std::uint32_t first_window;
};

struct PreparedWindow {
  std::uint64_t live_bytes;  // at its end
  std::uint32_t threads;     // that have events in it
  std::uint32_t unused;
};

// Events do not go beyond a chunk.
struct PreparedChunk {
  std::uint64_t offset;
  std::uint64_t bytes;
};
inline constexpr std::uint64_t kMostChunkBytes = 64 * 1024;

// An event is one byte and the numbers that are named here, in the trace's encoding.
enum class Op : std::uint8_t {
  end = 0,
  window = 1,   // how many windows on
  malloc = 2,   // slot, size
  calloc = 3,   // slot, size
  aligned = 4,  // slot, size, logarithm of the alignment
  realloc = 5,  // slot, size, old slot, old size
  free = 6,     // slot, size
};
// Bits of the byte: the slot, and the old slot, is in the table that all threads share.
inline constexpr std::uint8_t kShared = 8;
inline constexpr std::uint8_t kOldShared = 16;
inline constexpr std::uint64_t kMostOpBytes = 1 + 4 * 8;

}  // namespace replay

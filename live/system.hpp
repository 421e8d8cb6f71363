// What the system knows of this process. Nothing here allocates outside of the server's heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::live {

[[nodiscard]] std::uint64_t now_ms() noexcept;         // since some start, steadily
[[nodiscard]] std::uint64_t wall_clock_ms() noexcept;  // since 1970

// Now, as HTTP writes it. libc's functions for this read the time zone, which allocates.
void http_date(char (&to)[32]) noexcept;

// The start of a file as a text; its length, 0 when it cannot be read.
std::size_t read_file(const char* path, char* to, std::size_t room) noexcept;

struct ProcessFigures {
  std::uint64_t resident;
  std::uint64_t addresses;  // all mappings
  std::uint64_t threads;
  std::uint64_t minor_faults;
  std::uint64_t major_faults;
};
[[nodiscard]] ProcessFigures process_figures() noexcept;

// The name of a thread of this process, empty when it is gone.
void thread_name(std::uint32_t thread, char (&name)[16]) noexcept;

// All threads but the caller's have ended, so that the process would end without it.
[[nodiscard]] bool is_last_thread() noexcept;

// How much of each of `count` pieces of memory is resident: pieces[i] to resident[i].
struct Piece {
  std::uintptr_t address;
  std::size_t bytes;
};
void measure_residency(const Piece* pieces, std::size_t count, std::size_t* resident) noexcept;

}  // namespace allod::live

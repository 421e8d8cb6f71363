// Figures of this process from the system. Allocates only in the server's heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace allod::live {

[[nodiscard]] std::uint64_t now_ms() noexcept;          // monotonic
[[nodiscard]] std::uint64_t wall_clock_ms() noexcept;   // since 1970
[[nodiscard]] std::uint64_t thread_time_ms() noexcept;  // of a processor, that the caller has used

// The current time in HTTP's format. libc's functions read the time zone, which allocates.
void http_date(char (&to)[32]) noexcept;

// Reads the start of a file as text. Returns its length, or 0 on failure.
std::size_t read_file(const char* path, char* to, std::size_t room) noexcept;

struct ProcessFigures {
  std::uint64_t resident;
  std::uint64_t addresses;  // all mappings
  std::uint64_t threads;
  std::uint64_t minor_faults;
  std::uint64_t major_faults;
};
[[nodiscard]] ProcessFigures process_figures() noexcept;

// When this process began, in seconds since 1970; 0: not known.
[[nodiscard]] std::uint64_t process_began() noexcept;

// The name of a thread of this process; empty if it has ended.
void thread_name(std::uint32_t thread, char (&name)[16]) noexcept;

// Whether all other threads have ended, so that the process would end without the caller.
[[nodiscard]] bool is_last_thread() noexcept;

// Measures the resident bytes of each piece: pieces[i] to resident[i].
struct Piece {
  std::uintptr_t address;
  std::size_t bytes;
};
void measure_residency(const Piece* pieces, std::size_t count, std::size_t* resident) noexcept;

}  // namespace allod::live

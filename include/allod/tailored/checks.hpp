// State of the checked build beyond one heap, and its reports.
#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "allod/tailored/chunk.hpp"
#include "allod/tailored/parts.hpp"

namespace allod::tailored {

// Writes one line to standard error, without allocation.
[[gnu::format(printf, 1, 2)]] inline void say(const char* format, ...) noexcept {
  char text[512] = "allod: ";
  constexpr std::size_t kPrefix = 7;
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vsnprintf(text + kPrefix, sizeof text - kPrefix - 1, format, arguments);
  va_end(arguments);
  std::size_t length = kPrefix + (written > 0 ? static_cast<std::size_t>(written) : 0);
  if (length > sizeof text - 2) length = sizeof text - 2;
  text[length++] = '\n';
  for (std::size_t done = 0; done < length;) {
    const ssize_t more = ::write(STDERR_FILENO, text + done, length - done);
    if (more <= 0) break;
    done += static_cast<std::size_t>(more);
  }
}

// The chunks of all checked heaps, of any type: a block freed to the wrong heap may belong to
// another of these.
class KnownChunks {
 public:
  void add(Chunk& chunk) noexcept {
    LockGuard guard{lock_};
    list_.push_front(&chunk);
  }
  void remove(Chunk& chunk) noexcept {
    LockGuard guard{lock_};
    list_.remove(&chunk);
  }
  // The name of the heap that owns `address`, or null.
  [[nodiscard]] const char* owner_of(const void* address) noexcept {
    LockGuard guard{lock_};
    for (Chunk* chunk = list_.first(); chunk != nullptr; chunk = chunk->known_links.next) {
      if (address_of(address) - address_of(chunk) < chunk->bytes) return chunk->owner->name;
    }
    return nullptr;
  }

 private:
  FutexLock lock_;
  List<Chunk, &Chunk::known_links> list_;
};
inline constinit KnownChunks known_chunks;

// The fault of an address that is to be freed.
enum class Fault : std::uint8_t { none, foreign, not_a_block, freed_twice };

// Checks the thread and the life of a heap.
class Guardian {
 public:
  // Ends the process if the heap has ended, or belongs to another thread.
  void check(const char* heap, bool one_thread) noexcept {
    if (state_ == State::gone) fail("heap '%s' is used after its end", heap);
    if (!one_thread) return;
    void* const self = os::Linux::self();
    if (thread_ == self) return;
    char name[kNameBytes] = "";
    prctl(PR_GET_NAME, name);
    const int id = static_cast<int>(gettid());
    if (thread_ != nullptr) {
      fail("heap '%s' is for one thread: thread %d '%s' has it, and thread %d '%s' uses it", heap,
           thread_id_, thread_name_, id, name);
    }
    thread_ = self;
    thread_id_ = id;
    __builtin_memcpy(thread_name_, name, kNameBytes);
  }
  // Ends the process if the block may not be freed to the heap of that name.
  static void check_block(Fault fault, const char* heap, const void* block) noexcept {
    switch (fault) {
      case Fault::none:
        return;
      case Fault::freed_twice:
        fail("heap '%s': block %p is freed twice", heap, block);
      case Fault::not_a_block:
        fail("heap '%s': %p is freed, but no block begins there", heap, block);
      case Fault::foreign:
        if (const char* const other = known_chunks.owner_of(block)) {
          fail("heap '%s': block %p is freed here, but it belongs to heap '%s'", heap, block,
               other);
        }
        fail("heap '%s': %p is freed, but belongs to no checked heap", heap, block);
    }
  }
  // Volatile, since the compiler may drop a store to an object whose life ends.
  void end() noexcept { *const_cast<volatile State*>(&state_) = State::gone; }

  template <class... A>
  [[noreturn]] ALLOD_COLD static void fail(const char* format, A... arguments) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    say(format, arguments...);
#pragma GCC diagnostic pop
    std::abort();
  }

 private:
  enum class State : unsigned char { used, gone };
  static constexpr std::size_t kNameBytes = 16;

  State state_ = State::used;
  void* thread_ = nullptr;
  int thread_id_ = 0;
  char thread_name_[kNameBytes] = {};
};

}  // namespace allod::tailored

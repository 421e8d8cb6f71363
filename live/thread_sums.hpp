// The bytes in use of each call stack by the threads that allocated them.
#pragma once

#include <cstdint>

#include "library.hpp"
#include "memory.hpp"

namespace allod::live {

struct ThreadSum {
  std::uint64_t stack;
  std::uint32_t thread;
  std::uint64_t blocks;  // times 256, like the bytes
  std::uint64_t bytes;
};

class ThreadSums {
 public:
  // Samples may come and go meanwhile. False if memory is exhausted.
  [[nodiscard]] bool gather() noexcept;
  // By stack and thread.
  [[nodiscard]] const Table<ThreadSum>& all() const noexcept { return all_; }

  // Calls visit(thread, blocks, bytes) for each thread of a stack. They sum up to what is in use of
  // the stack, which was told at another moment. Thread 0: not known.
  template <class Visit>
  void split(const allod_profile_stack_t& stack, Visit&& visit) const noexcept {
    std::uint64_t blocks = stack.live.blocks;
    std::uint64_t bytes = stack.live.bytes;
    const ThreadSum* const end = all_.end();
    const ThreadSum* row = first_of(stack.id);
    if (row == end || row->stack != stack.id) {
      if (bytes != 0) visit(std::uint32_t{0}, blocks, bytes);
      return;
    }
    for (; row != end && row->stack == stack.id; ++row) {
      const bool is_last = row + 1 == end || row[1].stack != stack.id;
      const std::uint64_t these = is_last ? blocks : told(row->blocks, blocks);
      const std::uint64_t size = is_last ? bytes : told(row->bytes, bytes);
      if (size != 0) visit(row->thread, these, size);
      blocks -= these;
      bytes -= size;
    }
  }

 private:
  static std::uint64_t told(std::uint64_t sum_x256, std::uint64_t most) noexcept {
    const std::uint64_t sum = (sum_x256 + 128) / 256;
    return sum < most ? sum : most;
  }
  [[nodiscard]] const ThreadSum* first_of(std::uint64_t stack) const noexcept;
  // Makes one row of those of the same stack and thread.
  void merge() noexcept;

  Table<ThreadSum> all_;
};

}  // namespace allod::live

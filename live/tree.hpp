// A call tree of functions, drawn as a flame graph.
#pragma once

#include <cstdint>

#include "json.hpp"
#include "memory.hpp"
#include "stacks.hpp"

namespace allod::live {

struct Place;

// Writes the members of a frame: its name, its short name if that is another, whether it only
// passes allocations on, file and line. Returns whether it does.
bool write_place(Json& json, const Place& place) noexcept;

class Tree {
 public:
  // Adds bytes and blocks at the stack's innermost function and all its callers. False if memory is
  // exhausted.
  [[nodiscard]] bool add(const allod_profile_stack_t& stack, std::uint64_t bytes,
                         std::uint64_t blocks) noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return nodes_.empty() ? 0 : nodes_[0].bytes;
  }
  [[nodiscard]] std::uint64_t blocks() const noexcept {
    return nodes_.empty() ? 0 : nodes_[0].blocks;
  }
  // Omits parts too small to be visible.
  void write(Json& json) const noexcept;

 private:
  static constexpr std::uint32_t kNone = 0;
  static constexpr unsigned kDeepest = 180;
  static constexpr std::uint64_t kSmallest = 4000;  // 1/4000 of all bytes

  struct Node {
    std::size_t name;  // its id
    std::uintptr_t address;
    unsigned inlined;  // index among the places at the address
    std::uint32_t first_child;
    std::uint32_t next;
    std::uint64_t bytes;
    std::uint64_t blocks;
  };
  [[nodiscard]] std::uint32_t child_of(std::uint32_t parent, const Node& like) noexcept;
  void write_node(Json& json, std::uint32_t index, unsigned depth) const noexcept;

  Table<Node> nodes_;
};

}  // namespace allod::live

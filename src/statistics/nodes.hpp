// Memory by node (NUMA).
#pragma once

#include "allod.h"
#include "allod/base/units.hpp"

namespace allod {

// Sets a row for each node that is told apart, and returns their number. Walks all spans with the
// space's lock held. Thread-safe.
std::uint32_t count_nodes(allod_node_t (&rows)[kMostNodes]) noexcept;

// The rows of now; none if there is one node.
class Nodes {
 public:
  Nodes() noexcept : count_{count_nodes(rows_)} {}
  [[nodiscard]] const allod_node_t* begin() const noexcept { return rows_; }
  [[nodiscard]] const allod_node_t* end() const noexcept {
    return rows_ + (count_ > 1 ? count_ : 0);
  }

 private:
  allod_node_t rows_[kMostNodes];
  std::uint32_t count_;
};

}  // namespace allod

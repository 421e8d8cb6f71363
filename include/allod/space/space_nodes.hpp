// Memory nodes (NUMA): each has regions and free spans of its own. The kernel places a page on the
// node of the thread that touches it first. So what threads of one node use, in turn, stays there.
// The program's memory policies are left alone.
#pragma once

#include "allod/space/space.hpp"

namespace allod::space {

template <os::Platform P, CheckLevel kChecks>
void Space<P, kChecks>::tell_apart(std::uint32_t nodes) noexcept {
  metadata_.start(nodes < 1 ? 1 : nodes < kMostNodes ? nodes : kMostNodes);
}

// The calling thread's node, which has bins. With the lock held.
template <os::Platform P, CheckLevel kChecks>
ALLOD_INLINE Node Space<P, kChecks>::here() noexcept {
  const Node node = this->node();
  return __builtin_expect(free_.has(node), 1) || add_node(node) ? node : Node{0};
}

template <os::Platform P, CheckLevel kChecks>
ALLOD_COLD bool Space<P, kChecks>::add_node(Node node) noexcept {
  using Bins = FreeSpans::Bins;
  if (!free_.is_started()) return false;
  auto* const bins = static_cast<Bins*>(metadata_.allocate(platform_, sizeof(Bins)));
  if (bins == nullptr) return false;
  free_.start(node, bins);
  return true;
}

}  // namespace allod::space

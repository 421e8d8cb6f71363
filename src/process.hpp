// The heap of this library: which parts it is made of.
#pragma once

#include "allod/os/linux.hpp"
#include "allod/thread/process_heap.hpp"

namespace allod {

// Tells the user what the program did wrong, and stops it unless told not to.
struct ReportToUser {
  static void report(const heap::Misuse& misuse) noexcept;
};

struct LibraryPolicy {
  using Platform = os::Linux;
  using Sizes = sizes::Geometric<std::size_t{4} << 20>;
  using Reporter = ReportToUser;
  static heap::HeapOptions options() noexcept;
};

struct ReleasePolicy : LibraryPolicy {
  static constexpr CheckLevel kChecks = CheckLevel::always;
  // Remember for each block who allocated and who freed it.
  static constexpr bool kTracked = false;
};

struct DebugPolicy : LibraryPolicy {
  static constexpr CheckLevel kChecks = CheckLevel::debug;
  static constexpr bool kTracked = true;
};

#ifdef ALLOD_VARIANT_DEBUG
using Policy = DebugPolicy;
#else
using Policy = ReleasePolicy;
#endif

using Process = thread::ProcessHeap<Policy>;

}  // namespace allod

extern template class allod::heap::Heap<allod::Policy>;

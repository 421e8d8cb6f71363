#include "entry/surface.hpp"

#include "libc/libc_malloc.hpp"
#include "settings/options.hpp"

namespace allod::surface {

int mallopt(int parameter, int value) noexcept {
  switch (parameter) {
    case M_TRIM_THRESHOLD:
      Process::ensure_started();
      settings().heap.purge_budget = value < 0 ? SIZE_MAX : static_cast<std::size_t>(value);
      settings().heap.most_below_peak = 0;
      Process::heap().options() = settings().heap;
      return 1;
    case M_MXFAST:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
      return 1;
    default:
      return 0;
  }
}

}  // namespace allod::surface

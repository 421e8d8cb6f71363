#include "entry/entry.hpp"

#include "guards/guards.hpp"
#include "text/new_failure.hpp"

namespace allod::entry {

ALLOD_NOINLINE std::size_t usable_size_elsewhere(const void* address) noexcept {
  const std::size_t bytes = Process::heap().usable_size(address);
  return bytes != 0 ? bytes : Guards::usable_size(address);
}

std::size_t usable_size_asked_for(const void* address) noexcept {
  std::size_t bytes = usable_size_elsewhere(address);
  if constexpr (Policy::kTracked) {
    if (bytes != 0 && !track_bounds(address, &bytes)) return 0;
  }
  return bytes;
}

void* try_new(std::size_t size, std::size_t alignment) noexcept {
  return alignment == 0 ? allocate<ReturnNull, Origin::any>(size)
                        : allocate_aligned<ReturnNull, Origin::any>(size, alignment);
}

}  // namespace allod::entry

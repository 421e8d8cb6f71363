// How much of a range of pages is present, by a platform that can look at them.
#pragma once

#include <cstddef>

#include "allod/base/base.hpp"

namespace allod::os {

class PresentPages {
 public:
  static constexpr std::size_t kLeastPage = 4096;
  // What is looked at in one call, and the pages that it has at most.
  static constexpr std::size_t kPart = std::size_t{512} << 10;
  static constexpr std::size_t kMost = kPart / kLeastPage;

  // Present bytes, as os::Platform says. Of large memory, samples one part of eight, unless it
  // shall be exact. The platform's look() fills one byte for each of its pages.
  template <class P>
  [[nodiscard]] static std::size_t estimate(const P& platform, void* address, std::size_t bytes,
                                            bool exact) noexcept {
    const std::size_t page = platform.page_size();
    const std::size_t step = exact || bytes <= 8 * kPart ? kPart : 8 * kPart;
    std::size_t present = 0;
    for (std::size_t done = 0; done < bytes; done += step) {
      const std::size_t whole = bytes - done < step ? bytes - done : step;
      const std::size_t part = whole < kPart ? whole : kPart;
      unsigned char pages[kMost] = {};
      if (!platform.look(static_cast<char*>(address) + done, part, pages)) return bytes;
      std::size_t found = 0;
      for (std::size_t i = 0; i < part / page; ++i) found += pages[i] & 1U;
      present += align_down(found * (whole / (part / page)), page);
    }
    return present;
  }
};

}  // namespace allod::os

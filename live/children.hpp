// The processes that this one has started, with their sizes and the links of their pages.
#pragma once

#include <event2/buffer.h>

namespace allod::live {

// As JSON. False if memory is exhausted.
[[nodiscard]] bool write_children(evbuffer* to) noexcept;

}  // namespace allod::live

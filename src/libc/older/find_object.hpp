// _dl_find_object where the C library may lack it.
#pragma once

namespace allod::older {

// Has the C library's own serve from now on, if it has one.
void find_finder() noexcept;

}  // namespace allod::older

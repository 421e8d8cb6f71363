// Allod as a zone of libmalloc, and the zones of others.
#pragma once

#include "portable/heap.hpp"

namespace allod::darwin {

// For blocks that are not Allod's: they go to the zone that knows them.
extern const portable::Runtime kOtherZones;

}  // namespace allod::darwin

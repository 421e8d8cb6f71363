// Layer 8, without the C API: heaps composed from parts.
#pragma once

#include "allod/tailored/heap.hpp"
#include "allod/tailored/leaks.hpp"
#include "allod/tailored/process.hpp"
#include "allod/tailored/std.hpp"
#include "allod/tailored/system_heap.hpp"

namespace allod {

// A heap of the parts that Composition names; see Parts. With ALLOD_USE_SYSTEM_MALLOC, defined for
// the whole program, it is a layer over the standard malloc.
#ifdef ALLOD_USE_SYSTEM_MALLOC
template <class Composition>
using Tailored = SystemHeap<Composition>;
#else
template <class Composition>
using Tailored = ComposedHeap<Composition>;
#endif

}  // namespace allod

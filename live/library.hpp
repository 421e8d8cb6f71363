// The allocator under observation. Its functions are weak: the server is preloaded beside any of
// the libraries, and does nothing without one.
#pragma once

#include "allod.h"

#pragma weak allod_version
#pragma weak allod_heap_new_ex
#pragma weak allod_heap_delete
#pragma weak allod_heap_malloc
#pragma weak allod_heap_realloc
#pragma weak allod_heap_free
#pragma weak allod_heap_stats_get
#pragma weak allod_heaps_get
#pragma weak allod_stats_get
#pragma weak allod_spans_get
#pragma weak allod_nodes_get
#pragma weak allod_malloc_trim
#pragma weak allod_option_set
#pragma weak allod_profile_start
#pragma weak allod_profile_stop
#pragma weak allod_profile_interval
#pragma weak allod_profile_reset
#pragma weak allod_profile_visit_stacks
#pragma weak allod_profile_visit_blocks
#pragma weak allod_profile_visit_classes
#pragma weak allod_profile_summary_get
#pragma weak allod_profile_function_get

namespace allod::live {

[[nodiscard]] inline bool has_library() noexcept {
  return &allod_version != nullptr && &allod_heap_new_ex != nullptr;
}

}  // namespace allod::live

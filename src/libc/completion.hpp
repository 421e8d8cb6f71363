// What the C library lacks that this process was started with.
#pragma once

#include "allod/base/base.hpp"

namespace allod {

// Address of a function or variable of the loaded C library, which not all releases have. 0 if it
// has none of that name, or is part of the program. Takes the loader's lock. Thread-safe.
[[nodiscard]] Address symbol_of_libc(const char* name) noexcept;

}  // namespace allod

// Has the functions of src/libc/older find what they stand for. Until it was called, a
// thread-specific key may be refused. Called once in a constructor or later, with nothing held; it
// may allocate. Null where these are not linked.
extern "C" [[gnu::weak, gnu::visibility("hidden")]] void allod_complete_libc() noexcept;

// Whether _dl_find_object() takes no lock of the loader, so that a signal handler may call it. Null
// where src/libc/older is not linked: then the C library has the function, which takes none.
extern "C" [[gnu::weak, gnu::visibility("hidden")]] bool
allod_finds_objects_without_lock() noexcept;

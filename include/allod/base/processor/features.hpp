// What Allod has on some processors alone. Code above asks for it by these names, never for a
// processor. A name that is not defined: it is absent.
#pragma once

#if defined(__x86_64__) || defined(__aarch64__)
// Restartable sequences (os/linux/restartable.hpp), and the wrapper of vfork that they need.
#define ALLOD_HAS_SEQUENCES 1
// A live page for the whole of the process (liballod-live.so).
#define ALLOD_HAS_LIVE_PAGE 1
#endif

#if defined(__x86_64__)
// An unwinder of our own (src/unwind). Elsewhere libgcc's serves.
#define ALLOD_HAS_UNWINDER 1
// The places of glibc's thread descriptors are known (src/stop/ended_threads.cpp).
#define ALLOD_KNOWS_DESCRIPTORS 1
#endif

#if defined(__aarch64__)
// Tags of memory (src/instance/memory_tags.hpp).
#define ALLOD_HAS_MEMORY_TAGS 1
#endif

#if defined(__arm__)
// The assembler refuses a personality routine that is weak, unless data refer to it, too.
#define ALLOD_NEEDS_PERSONALITY_IN_DATA 1
#endif

#if __SIZEOF_POINTER__ == 8
// A page map that takes so many addresses that limits of these must be respected.
#define ALLOD_HAS_LARGE_MAP 1
#endif

// For assembly: a word with an address, its bytes, and the letter of std::size_t in the names of
// C++ functions.
#if __SIZEOF_POINTER__ == 8
#define ALLOD_ASM_ADDRESS ".8byte"
#define ALLOD_ASM_BYTES "8"
#define ALLOD_SIZE_LETTER "m"
#else
#define ALLOD_ASM_ADDRESS ".4byte"
#define ALLOD_ASM_BYTES "4"
#define ALLOD_SIZE_LETTER "j"
#endif

namespace allod {

#ifdef ALLOD_HAS_SEQUENCES
inline constexpr bool kHasSequences = true;
#else
inline constexpr bool kHasSequences = false;
#endif
#ifdef ALLOD_HAS_LIVE_PAGE
inline constexpr bool kHasLivePage = true;
#else
inline constexpr bool kHasLivePage = false;
#endif

}  // namespace allod

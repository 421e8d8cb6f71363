// As much of macOS as Allod's library asks for, on Linux: stands in for what it imports of
// libSystem. Each thread has an array of values of its keys at the thread pointer of macOS. That is
// the register gs on x86-64; on arm64, the loader makes it the thread pointer of Linux. The numbers
// are those of Apple's headers.
#include "libsystem.hpp"

#if defined(__x86_64__)
#include <asm/prctl.h>
#endif
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

extern char** environ;
// The linker gives ours to everybody else: see host.cpp.
extern "C" int __real_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

namespace libsystem {

// --- threads --------------------------------------------------------------------------------

namespace {

// For calls of macOS that do not set errno.
class KeptErrno {
 public:
  KeptErrno() : error_{errno} {}
  ~KeptErrno() { errno = error_; }
  KeptErrno(const KeptErrno&) = delete;
  KeptErrno& operator=(const KeptErrno&) = delete;

 private:
  int error_;
};

constexpr std::size_t kFirstKey = 256;
constexpr std::size_t kKeys = 256;
constexpr int kRounds = 4;

// The descriptor of a thread; what pthread_self() returns.
struct Thread {
  void* values[kFirstKey + kKeys];
  std::uint64_t number;
  std::uint32_t mask;
};
struct Key {
  std::atomic<bool> is_taken;
  void (*end)(void*);
};
Key keys[kKeys];
std::mutex threads_mutex;
std::vector<Thread*> spare;  // the last one that ended is the first to come again
std::atomic<std::uint64_t> threads_made{0};

#if defined(__aarch64__)

// The first variables of a thread in the program's block, which lies two words behind the thread
// pointer.
struct Own {
  void* values[kFirstKey + kKeys];
  Thread* thread;
};
thread_local Own own;
void** values() { return static_cast<void**>(__builtin_thread_pointer()); }
Thread* self() { return own.thread; }
void become(Thread* thread) {
  if (own.values != values() + 2) std::abort();
  own.thread = thread;
}
constexpr int kPage = 16384;

#else

Thread* self() {
  Thread* thread;
  __asm__ volatile("movq %%gs:0, %0" : "=r"(thread));
  return thread;
}
void** values() { return self()->values; }
void become(Thread* thread) {
  thread->values[0] = thread;
  syscall(SYS_arch_prctl, ARCH_SET_GS, thread);
}
constexpr int kPage = 4096;

#endif

int page_size() { return kPage; }

}  // namespace

void begin_thread() {
  Thread* thread = nullptr;
  {
    const std::lock_guard guard{threads_mutex};
    if (!spare.empty()) {
      thread = spare.back();
      spare.pop_back();
    }
  }
  if (thread == nullptr) thread = static_cast<Thread*>(std::aligned_alloc(16384, 16384));
  std::memset(thread, 0, sizeof *thread);
  thread->number = ++threads_made;
  become(thread);
}

// Like libpthread: the values of all keys that there are become null, also of those without a
// destructor.
void end_thread() {
  void** const own_values = values();
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kKeys; ++i) {
      void* const value = own_values[kFirstKey + i];
      if (!keys[i].is_taken || value == nullptr) continue;
      own_values[kFirstKey + i] = nullptr;
      if (keys[i].end != nullptr) keys[i].end(value);
    }
  }
  const std::lock_guard guard{threads_mutex};
  spare.push_back(self());
}

namespace {

int key_create(unsigned long* key, void (*end)(void*)) {
  for (std::size_t i = 0; i < kKeys; ++i) {
    if (keys[i].is_taken.exchange(true)) continue;
    keys[i].end = end;
    *key = kFirstKey + i;
    return 0;
  }
  return EAGAIN;
}
int key_delete(unsigned long key) {
  keys[key - kFirstKey].is_taken = false;
  return 0;
}
int set_specific(unsigned long key, void* value) {
  values()[key] = value;
  return 0;
}
int thread_number(Thread* of, std::uint64_t* number) {
  const Thread* const thread = of != nullptr ? of : self();
  *number = static_cast<std::uint64_t>(getpid()) << 32 | thread->number;
  return 0;
}
std::uint32_t port_of(Thread* thread) {
  return static_cast<std::uint32_t>(thread->number) << 8 | 7;
}
// Only noted. A set of signals has 32 bits.
int signal_mask(int how, const std::uint32_t* mask, std::uint32_t* before) {
  constexpr int kBlock = 1;
  constexpr int kSet = 3;
  Thread* const thread = self();
  if (before != nullptr) *before = thread->mask;
  if (mask == nullptr) return 0;
  if (how == kBlock) thread->mask |= *mask;
  if (how == kSet) thread->mask = *mask;
  return 0;
}
int no_signals(std::uint32_t* pending) {
  *pending = 0;
  return 0;
}
// pthread_attr_t is larger there than here; only the size of the stack is kept.
struct Wishes {
  std::size_t stack_bytes;
};
int wishes_init(Wishes* wishes) {
  *wishes = {std::size_t{512} << 10};
  return 0;
}
int wishes_detached(Wishes*, int how) { return how == 2 ? 0 : EINVAL; }
int wishes_stack(Wishes* wishes, std::size_t bytes) {
  wishes->stack_bytes = bytes;
  return bytes >= 8192 && bytes % 4096 == 0 ? 0 : EINVAL;
}
int wishes_end(Wishes*) { return 0; }
int create_thread(Thread** thread, const Wishes*, void* (*function)(void*), void* argument) {
  const KeptErrno kept;
  pthread_t made;
  const int failed = start(&made, function, argument);
  if (failed == 0) pthread_detach(made);
  *thread = nullptr;
  return failed;
}

// --- memory ---------------------------------------------------------------------------------

constexpr int kMark = 240 << 24;

void* map(void* address, std::size_t bytes, int protection, int flags, int file, long) {
  constexpr int kPrivate = 2;
  constexpr int kFixed = 0x10;
  constexpr int kAnonymous = 0x1000;
  if ((flags & ~kFixed) != (kPrivate | kAnonymous) || (file != kMark && file != -1)) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  return mmap(address, bytes, protection,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | ((flags & kFixed) != 0 ? MAP_FIXED : 0),
              -1, 0);
}
// One byte for each page.
int look(void* address, std::size_t bytes, char* pages) {
  for (std::size_t done = 0; done < bytes; done += kPage) {
    unsigned char present[kPage / 4096];
    if (mincore(static_cast<char*>(address) + done, kPage, present) != 0) return -1;
    *pages++ = static_cast<char>(present[0]);
  }
  return 0;
}
int map_mach(std::uint32_t task, std::uint64_t* address, std::uint64_t bytes, std::uint64_t mask,
             int flags, std::uint32_t object, std::uint64_t offset, int copies,
#if defined(__aarch64__)
             // Apple packs arguments on the stack.
             std::uint64_t both, std::uint32_t inherits) {
  const int now = static_cast<int>(both);
  const int most = static_cast<int>(both >> 32);
#else
             int now, int most, std::uint32_t inherits) {
#endif
  constexpr int kInvalid = 4;
  constexpr int kNoSpace = 3;
  constexpr int kAnywhere = 1;
  constexpr int kAll = 7;
  constexpr std::uint32_t kCopied = 1;
  if (task != own_task || object != 0 || offset != 0 || copies != 0 || most != kAll ||
      inherits != kCopied || (flags & ~kAnywhere) != kMark || bytes % 4096 != 0) {
    return kInvalid;
  }
  const KeptErrno kept;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if ((flags & kAnywhere) == 0) {
    void* const wanted = reinterpret_cast<void*>(*address);
    return mmap(wanted, bytes, now, kFlags | MAP_FIXED_NOREPLACE, -1, 0) == wanted ? 0 : kNoSpace;
  }
  void* const raw = mmap(nullptr, bytes + mask, now, kFlags, -1, 0);
  if (raw == MAP_FAILED) return kNoSpace;
  const auto from = reinterpret_cast<std::uint64_t>(raw);
  const std::uint64_t aligned = (from + mask) & ~mask;
  if (aligned != from) munmap(raw, aligned - from);
  const std::uint64_t end = (from + bytes + mask + 4095) & ~std::uint64_t{4095};
  if (end != aligned + bytes)
    munmap(reinterpret_cast<void*>(aligned + bytes), end - aligned - bytes);
  *address = aligned;
  return 0;
}
int read_mach(std::uint32_t task, std::uint64_t from, std::uint64_t bytes, std::uint64_t to,
              std::uint64_t* copied) {
  const KeptErrno kept;
  if (task != own_task) return 4;
  const iovec source{reinterpret_cast<void*>(from), bytes};
  const iovec target{reinterpret_cast<void*>(to), bytes};
  const ssize_t done = process_vm_readv(getpid(), &target, 1, &source, 1, 0);
  *copied = done > 0 ? static_cast<std::uint64_t>(done) : 0;
  return done == static_cast<ssize_t>(bytes) ? 0 : 1;
}

// --- the rest -------------------------------------------------------------------------------

int wait_on(std::uint32_t operation, void* word, std::uint64_t value, std::uint32_t microseconds) {
  const KeptErrno kept;
  if (operation != 0x01000001) std::abort();
  const timespec timeout{microseconds / 1'000'000, microseconds % 1'000'000 * 1000L};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, microseconds != 0 ? &timeout : nullptr);
  return 0;
}
int wake(std::uint32_t operation, void* word, std::uint64_t) {
  const KeptErrno kept;
  if ((operation & ~0x100U) != 0x01000001) std::abort();
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, (operation & 0x100) != 0 ? 0x7fffffff : 1);
  return 0;
}
std::uint64_t nanoseconds(int clock) {
  if (clock != 5) std::abort();
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}
int processor(std::size_t* number) {
  *number = static_cast<std::size_t>(sched_getcpu());
  return 0;
}
long system_value(int name) { return name == 58 ? sysconf(_SC_NPROCESSORS_ONLN) : -1; }
void* find_by_name(void*, const char*) { return nullptr; }
void* open_library(const char*, int) { return nullptr; }
int describe(const void*, void*) { return 0; }
char*** environment() { return &environ; }
int has_elevated_rights() { return std::getenv("TEST_ELEVATED") != nullptr ? 1 : 0; }

// --- zones ----------------------------------------------------------------------------------

std::size_t size_in_system(Zone*, const void* block) {
  return malloc_usable_size(const_cast<void*>(block));
}
Zone system_zone;
std::vector<Zone*> zones{&system_zone};

void register_zone(Zone* zone) { zones.push_back(zone); }
void unregister_zone(Zone* zone) { std::erase(zones, zone); }
int all_zones(std::uint32_t, void*, Zone*** all, unsigned* count) {
  *all = zones.data();
  *count = static_cast<unsigned>(zones.size());
  return 0;
}
Zone* zone_of(const void* block) {
  for (Zone* const zone : zones) {
    if (zone->size(zone, block) != 0) return zone;
  }
  return nullptr;
}
void zone_free(Zone* zone, void* block) {
  zone == &system_zone ? std::free(block) : zone->free(zone, block);
}
void* zone_realloc(Zone* zone, void* block, std::size_t size) {
  return zone == &system_zone ? std::realloc(block, size) : zone->realloc(zone, block, size);
}
std::size_t zone_size(const void* block) {
  Zone* const zone = zone_of(block);
  return zone != nullptr ? zone->size(zone, block) : 0;
}
std::size_t good_size(std::size_t size) { return size; }
void* reallocf(void* block, std::size_t size) { return std::realloc(block, size); }

extern "C" int __cxa_atexit(void (*)(void*), void*, void*);
int at_exit(void (*function)(void*), void* argument, void*) {
  return __cxa_atexit(function, argument, nullptr);
}

struct Import {
  std::string_view name;
  void* function;
};
#define SELF(name) {#name, reinterpret_cast<void*>(&::name)}
const Import kImports[] = {
    {"mach_task_self_", &own_task},
    {"dyld_stub_binder", reinterpret_cast<void*>(&std::abort)},
    {"pthread_self", reinterpret_cast<void*>(&self)},
    {"pthread_key_create", reinterpret_cast<void*>(&key_create)},
    {"pthread_key_delete", reinterpret_cast<void*>(&key_delete)},
    {"pthread_setspecific", reinterpret_cast<void*>(&set_specific)},
    {"pthread_threadid_np", reinterpret_cast<void*>(&thread_number)},
    {"pthread_mach_thread_np", reinterpret_cast<void*>(&port_of)},
    {"pthread_sigmask", reinterpret_cast<void*>(&signal_mask)},
    {"sigpending", reinterpret_cast<void*>(&no_signals)},
    {"sigwait", reinterpret_cast<void*>(&std::abort)},
    {"pthread_attr_init", reinterpret_cast<void*>(&wishes_init)},
    {"pthread_attr_setdetachstate", reinterpret_cast<void*>(&wishes_detached)},
    {"pthread_attr_setstacksize", reinterpret_cast<void*>(&wishes_stack)},
    {"pthread_attr_destroy", reinterpret_cast<void*>(&wishes_end)},
    {"pthread_create", reinterpret_cast<void*>(&create_thread)},
    {"pthread_cpu_number_np", reinterpret_cast<void*>(&processor)},
    {"pthread_atfork", reinterpret_cast<void*>(&::pthread_atfork)},
    {"getpagesize", reinterpret_cast<void*>(&page_size)},
    {"mincore", reinterpret_cast<void*>(&look)},
    {"mmap", reinterpret_cast<void*>(&map)},
    {"mach_vm_map", reinterpret_cast<void*>(&map_mach)},
    {"mach_vm_read_overwrite", reinterpret_cast<void*>(&read_mach)},
    {"__ulock_wait", reinterpret_cast<void*>(&wait_on)},
    {"__ulock_wake", reinterpret_cast<void*>(&wake)},
    {"clock_gettime_nsec_np", reinterpret_cast<void*>(&nanoseconds)},
    {"sysconf", reinterpret_cast<void*>(&system_value)},
    {"__cxa_atexit", reinterpret_cast<void*>(&at_exit)},
    {"dlsym", reinterpret_cast<void*>(&find_by_name)},
    {"dlopen", reinterpret_cast<void*>(&open_library)},
    {"dladdr", reinterpret_cast<void*>(&describe)},
    {"_NSGetEnviron", reinterpret_cast<void*>(&environment)},
    {"issetugid", reinterpret_cast<void*>(&has_elevated_rights)},
    {"__error", reinterpret_cast<void*>(&::__errno_location)},
    {"malloc_zone_register", reinterpret_cast<void*>(&register_zone)},
    {"malloc_zone_unregister", reinterpret_cast<void*>(&unregister_zone)},
    {"malloc_get_all_zones", reinterpret_cast<void*>(&all_zones)},
    {"malloc_zone_from_ptr", reinterpret_cast<void*>(&zone_of)},
    {"malloc_zone_free", reinterpret_cast<void*>(&zone_free)},
    {"malloc_zone_realloc", reinterpret_cast<void*>(&zone_realloc)},
    {"malloc_size", reinterpret_cast<void*>(&zone_size)},
    {"malloc_good_size", reinterpret_cast<void*>(&good_size)},
    {"reallocf", reinterpret_cast<void*>(&reallocf)},
    {"__bzero", reinterpret_cast<void*>(&::bzero)},
    SELF(abort),
    SELF(aligned_alloc),
    SELF(bzero),
    SELF(calloc),
    SELF(free),
    SELF(getentropy),
    SELF(malloc),
    {"memchr",
     reinterpret_cast<void*>(static_cast<const void* (*)(const void*, int, size_t)>(&::memchr))},
    SELF(memcmp),
    SELF(memcpy),
    SELF(memmove),
    SELF(memset),
    SELF(mlock),
    SELF(mprotect),
    SELF(munmap),
    SELF(nanosleep),
    SELF(poll),
    SELF(posix_memalign),
    SELF(realloc),
    SELF(sched_yield),
    SELF(strlen),
    SELF(strnlen),
    SELF(valloc),
    SELF(write),
};

}  // namespace

std::uint32_t own_task = 0x103;

Zone* first_zone() { return zones.front(); }

void* find(std::string_view name) {
  system_zone.size = &size_in_system;
  for (const Import& import : kImports) {
    if (import.name == name) return import.function;
  }
  return nullptr;
}

// --- threads of the program -----------------------------------------------------------------

namespace {

struct Beginning {
  void* (*function)(void*);
  void* argument;
};
void* run(void* beginning) {
  const Beginning begin = *static_cast<Beginning*>(beginning);
  delete static_cast<Beginning*>(beginning);
  begin_thread();
  void* const result = begin.function(begin.argument);
  end_thread();
  return result;
}

}  // namespace

int start(unsigned long* thread, void* (*function)(void*), void* argument) {
  return __real_pthread_create(thread, nullptr, &run, new Beginning{function, argument});
}

}  // namespace libsystem

// Functions that the kernel maps into each process (the vDSO), called without the C library: its
// functions may be interposed by code that allocates, and a lock may be held.
#pragma once

#include <elf.h>
#include <link.h>
#include <sys/syscall.h>
#include <time.h>

#include "allod/base/auxiliary.hpp"
#include "allod/base/base.hpp"
#include "allod/os/linux/calls.hpp"
#include "allod/os/linux/symbol_table.hpp"

namespace allod::os {

// An object that the kernel has mapped.
class SharedObject {
 public:
  // `image` may be 0: none.
  explicit SharedObject(Address image) noexcept {
    if (image == 0) return;
    const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(image);
    const auto* const parts = reinterpret_cast<const ElfW(Phdr)*>(image + header.e_phoff);
    bool has_load = false;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      if (parts[i].p_type == PT_DYNAMIC) {
        contents_ = reinterpret_cast<const ElfW(Dyn)*>(image + parts[i].p_offset);
      } else if (parts[i].p_type == PT_LOAD && !has_load) {
        has_load = true;
        bias_ = image + parts[i].p_offset - parts[i].p_vaddr;
      }
    }
  }
  // Address of a function; 0 if it does not exist. Cold, like its callers, which every program runs
  // once.
  [[nodiscard]] ALLOD_COLD Address find(const char* name) const noexcept {
    const SymbolTable symbols{contents_, [&](Address at) noexcept { return bias_ + at; }};
    const ElfW(Sym)* const found = symbols.find(name);
    return found != nullptr ? bias_ + found->st_value : 0;
  }

 private:
  Address bias_ = 0;
  const ElfW(Dyn) * contents_ = nullptr;
};

// Thread-safe, async-signal-safe, usable in a child of fork and without a C library; keeps errno.
// Uses a system call if the kernel maps no such function, as under valgrind.
class Vdso {
 public:
  static void clock_gettime(clockid_t clock, timespec* now) noexcept {
    Clock* const function = clock_.load(std::memory_order_relaxed);
    if (function(clock, now) != 0) ask_clock(clock, now);
  }
  // The calling thread's current processor; a hint.
  [[nodiscard]] static std::uint32_t processor() noexcept {
    unsigned number = 0;
    Processor* const function = processor_.load(std::memory_order_relaxed);
    return function(&number, nullptr, nullptr) == 0 ? number : 0;
  }
  // The same with the memory node of that processor.
  struct Place {
    unsigned processor = 0;
    unsigned node = 0;
  };
  [[nodiscard]] static Place place() noexcept {
    Place place;
    Processor* const function = processor_.load(std::memory_order_relaxed);
    return function(&place.processor, &place.node, nullptr) == 0 ? place : Place{};
  }

 private:
  using Clock = int(clockid_t, timespec*);
  using Processor = int(unsigned* processor, unsigned* node, void* unused);

  // Not every processor has both.
#if defined(__x86_64__) || defined(__i386__) || defined(__arm__) || defined(__riscv)
  static constexpr const char* kClock =
      calls::kHasWideTimes ? "__vdso_clock_gettime64" : "__vdso_clock_gettime";
  static constexpr const char* kProcessor = "__vdso_getcpu";
#else
  static constexpr const char* kClock = "__kernel_clock_gettime";
  static constexpr const char* kProcessor = "__kernel_getcpu";
#endif

  template <class Function>
  [[nodiscard]] static Function* find(const char* name, Function* otherwise) noexcept {
    const Address at = SharedObject{Auxiliary::value(AT_SYSINFO_EHDR)}.find(name);
    return at == 0 ? otherwise : reinterpret_cast<Function*>(at);
  }
  static int ask_clock(clockid_t clock, timespec* now) noexcept {
    return static_cast<int>(raw_syscall(calls::kClock, clock, as_long(now)));
  }
  static int ask_processor(unsigned* processor, unsigned* node, void*) noexcept {
    return static_cast<int>(raw_syscall(SYS_getcpu, as_long(processor), as_long(node), 0));
  }
  // Initial functions, which look for the real ones.
  static ALLOD_COLD int first_clock(clockid_t clock, timespec* now) noexcept {
    Clock* const found = find(kClock, &ask_clock);
    clock_.store(found, std::memory_order_relaxed);
    return found(clock, now);
  }
  static ALLOD_COLD int first_processor(unsigned* processor, unsigned* node,
                                        void* unused) noexcept {
    Processor* const found = find(kProcessor, &ask_processor);
    processor_.store(found, std::memory_order_relaxed);
    return found(processor, node, unused);
  }
  static long as_long(const void* pointer) noexcept {
    return static_cast<long>(address_of(pointer));
  }

  static inline constinit std::atomic<Clock*> clock_{&first_clock};
  static inline constinit std::atomic<Processor*> processor_{&first_processor};
};

}  // namespace allod::os

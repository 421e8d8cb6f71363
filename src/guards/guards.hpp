// Sampled allocations on pages of their own, in production: after GWP-ASan (K. Serebryany and
// others, "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs in Production").
//
// A guarded block lies at the end of its page, or at its start, chosen at random, and between two
// pages that cannot be touched. When it is freed, its page cannot be touched either, until the page
// is the one that was freed longest ago and all others are in use or were freed later. What goes
// wrong with it is a fault, which faults.hpp turns into a report.
#pragma once

#include <atomic>

#include "allod/heap/misuse.hpp"
#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod {

struct History;

// All functions are static and thread-safe, and take no lock: a signal handler may call any of
// them, at any time.
class Guards {
 public:
  [[nodiscard]] static bool is_on() noexcept { return GuardedSamples::are_on(); }
  [[nodiscard]] static std::size_t period() noexcept { return GuardedSamples::period(); }
  // Larger blocks are not guarded. Known as soon as the heap has started, for what is drawn before
  // prepare() counts on.
  [[nodiscard]] static std::size_t largest() noexcept;

  // Before prepare().
  static void choose_slots(std::uint32_t count) noexcept { wanted_slots_ = count; }
  static void prepare() noexcept;

  // A block of zeros; null when all pages are in use, or the size or the alignment is too large.
  [[nodiscard]] static void* allocate(std::size_t size, std::size_t alignment) noexcept;
  // Is there a guarded block, or a guard, at the address?
  [[nodiscard]] static bool holds(const void* address) noexcept {
    return address_of(address) - base_.load(std::memory_order_acquire) < bytes_;
  }
  // For addresses that are held. What is no block in use is reported.
  static void release(void* address) noexcept;
  [[nodiscard]] static bool inspect(const void* address, std::size_t* bytes) noexcept;
  // Bytes that were asked for; 0 for what is no guarded block in use.
  [[nodiscard]] static std::size_t usable_size(const void* address) noexcept;
  // The block that is, or was last, on the page of an address that is held.
  [[nodiscard]] static heap::Bounds bounds_of(const void* address) noexcept;
  // Where the block begins that is, or was last, on the page at the address; 0 for a guard.
  [[nodiscard]] static Address block_on_page(const void* address) noexcept;

  // For a report about an address that is held.
  [[nodiscard]] static heap::Misuse describe(heap::MisuseKind kind, const void* address) noexcept;
  // Of an access that has failed: what was wrong with it. False when it has nothing to do with
  // guarded blocks.
  [[nodiscard]] static bool explain_fault(const void* address, heap::Misuse* misuse) noexcept;
  // For reports: where the address lies, and who allocated and freed the block there.
  static void write_place(Text& out, const heap::Misuse& misuse) noexcept;
  [[nodiscard]] static History history_of(const heap::Misuse& misuse) noexcept;

 private:
  struct Slot;
  enum class State : std::uint32_t { unused, busy, live, freed };

  [[nodiscard]] static Slot* claim() noexcept;
  // Null for a guard.
  [[nodiscard]] static Slot* slot_at(const void* address) noexcept;
  [[nodiscard]] static Slot* slot_near(const void* address) noexcept;
  [[nodiscard]] static const Slot* last_used_before(const Slot* slot) noexcept;
  [[nodiscard]] static Address page_of(const Slot& slot) noexcept;
  static void check_surroundings(const Slot& slot) noexcept;
  [[nodiscard]] static heap::Misuse misuse_of(heap::MisuseKind kind, const void* address,
                                              const Slot* slot) noexcept;
  static void report_not_in_use(const void* address, const Slot* slot) noexcept;

  static inline constinit std::uint32_t wanted_slots_ = 0;
  // Written once, before the base.
  static inline constinit std::size_t page_ = 0;
  static inline constinit std::size_t bytes_ = 0;
  static inline constinit std::uint32_t slot_count_ = 0;
  static inline constinit Slot* slots_ = nullptr;
  static inline constinit std::atomic<Address> base_{0};
  static inline constinit std::atomic<std::uint64_t> frees_{0};
};

}  // namespace allod

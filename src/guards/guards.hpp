// Sampled allocations between guard pages, for production, after GWP-ASan (K. Serebryany and
// others, "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs in Production").
//
// A guarded block lies at the start or the end of its page, chosen at random, between two
// inaccessible pages. When it is freed, its page becomes inaccessible too. Pages are reused in the
// order of their frees, once no unused page is left. Out-of-bounds accesses and uses after free
// fault; faults.hpp turns the fault into a report.
#pragma once

#include <atomic>

#include "allod/heap/misuse.hpp"
#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod {

struct History;

// All functions are static, thread-safe, lock-free and async-signal-safe.
class Guards {
 public:
  [[nodiscard]] static bool is_on() noexcept { return GuardedSamples::are_on(); }
  [[nodiscard]] static std::size_t period() noexcept { return GuardedSamples::period(); }
  // The largest guarded size in bytes. Valid once the heap has started, since draws before
  // prepare() need it.
  [[nodiscard]] static std::size_t largest() noexcept;

  // Must be called before prepare().
  static void choose_slots(std::uint32_t count) noexcept { wanted_slots_ = count; }
  static void prepare() noexcept;

  // Returns a zeroed block; null if all pages are in use, or size or alignment exceed a page.
  [[nodiscard]] static void* allocate(std::size_t size, std::size_t alignment) noexcept;
  // Whether the address is in a guarded block's page or a guard.
  [[nodiscard]] static bool holds(const void* address) noexcept {
    return address_of(address) - base_.load(std::memory_order_acquire) < bytes_;
  }
  // The following require holds(address). Frees the block; reports an address that is not a live
  // block.
  static void release(void* address) noexcept;
  [[nodiscard]] static bool inspect(const void* address, std::size_t* bytes) noexcept;
  // The requested size; 0 unless `address` is a live guarded block.
  [[nodiscard]] static std::size_t usable_size(const void* address) noexcept;
  // The bounds of the current or last block on the address's page.
  [[nodiscard]] static heap::Bounds bounds_of(const void* address) noexcept;
  // Start of the current or last block on the address's page; 0 for a guard.
  [[nodiscard]] static Address block_on_page(const void* address) noexcept;

  // Describes a held address for a report.
  [[nodiscard]] static heap::Misuse describe(heap::MisuseKind kind, const void* address) noexcept;
  // Explains a fault. False if it is unrelated to guarded blocks.
  [[nodiscard]] static bool explain_fault(const void* address, heap::Misuse* misuse) noexcept;
  // Writes where the address lies, and who allocated and freed the block.
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
  // Written once, before base_.
  static inline constinit std::size_t page_ = 0;
  static inline constinit std::size_t bytes_ = 0;
  static inline constinit std::uint32_t slot_count_ = 0;
  static inline constinit Slot* slots_ = nullptr;
  static inline constinit std::atomic<Address> base_{0};
  static inline constinit std::atomic<std::uint64_t> frees_{0};
};

}  // namespace allod

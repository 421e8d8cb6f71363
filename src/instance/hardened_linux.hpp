// Linux for the hardened library: memory at random addresses, records between guards.
#pragma once

#include "allod/base/random.hpp"
#include "allod/os/linux/linux.hpp"
#include "instance/memory_tags.hpp"

namespace allod {

class HardenedLinux : public os::Linux {
 public:
  void start() noexcept {
    os::Linux::start();
    scattered_ = addresses && address_space_limit() == 0;
    light_guards_ = guards && has_light_guards();
  }

  [[nodiscard]] ALLOD_HOT void* reserve(std::size_t bytes, std::size_t alignment) noexcept {
    if (map_is_whole_ && is_granted(bytes)) {
      const std::size_t grain = alignment > kSliceBytes ? alignment : kSliceBytes;
      if (void* const there = map_at(random_address(grain), bytes, PROT_NONE)) {
        if ((address_of(there) & (alignment - 1)) == 0) return there;
        unmap(there, bytes);
      }
    }
    return os::Linux::reserve(bytes, alignment);
  }
  // False while regions are scattered, so that the address of one reveals nothing about others.
  [[nodiscard]] bool gathers() const noexcept { return !map_is_whole_; }
  // Maps the page map between two inaccessible pages.
  [[nodiscard]] void* reserve_zeros(std::size_t bytes) noexcept {
    void* const zeros =
        scattered_ ? map_between_guards(bytes, PROT_READ) : os::Linux::reserve_zeros(bytes);
    if (scattered_ && zeros != nullptr) dump(zeros, bytes, false);
    // If the page map is only a window, all memory must lie in its range.
    constexpr std::size_t kAllSlices = std::size_t{1} << (kAddressBits - kSliceShift);
    map_is_whole_ = scattered_ && zeros != nullptr && bytes / 8 >= kAllSlices;
    zeros_ = address_of(zeros);
    zeros_bytes_ = bytes;
    return zeros;
  }
  // Maps records, likewise.
  [[nodiscard]] void* map(std::size_t bytes) noexcept {
    void* const memory = scattered_ ? map_between_guards(bytes, PROT_READ | PROT_WRITE) : nullptr;
    return memory != nullptr ? memory : os::Linux::map(bytes);
  }
  // From now on the kernel chooses the addresses of blocks.
  void stay_together() noexcept { map_is_whole_ = false; }

  // Memory of blocks may carry tags; records do not.
  [[nodiscard]] bool commit(void* address, std::size_t bytes) noexcept {
    const bool is_record = address_of(address) - zeros_ < zeros_bytes_;
    return is_record ? os::Linux::commit(address, bytes) : protect(address, bytes, usable());
  }

  // Discards the pages and makes every access fault. False if the kernel would need a mapping for
  // each; Linux 6.13 and later does not.
  bool close(void* address, std::size_t bytes) noexcept {
    return light_guards_ && os::Linux::guard(address, bytes);
  }
  // Makes closed pages accessible again; they read as zero. False if the kernel refuses.
  [[nodiscard]] bool open(void* address, std::size_t bytes) noexcept {
    return !light_guards_ || os::Linux::unguard(address, bytes);
  }

  // Whether close() works.
  [[nodiscard]] bool closes() const noexcept { return light_guards_; }

  // See os::Shutting. Shut pages are a mapping of their own.
  [[nodiscard]] bool shut(void* address, std::size_t bytes) noexcept {
    return !spares_mappings_.load(std::memory_order_relaxed) && protect(address, bytes, PROT_NONE);
  }
  [[nodiscard]] bool reopen(void* address, std::size_t bytes) noexcept {
    return protect(address, bytes, usable());
  }
  [[nodiscard]] bool spares_mappings() noexcept {
    if (!lacks_mappings()) return false;
    spares_mappings_.store(true, std::memory_order_relaxed);
    return true;
  }

  // See os::Guarding. On older kernels a guard is a mapping. The program needs mappings too, so
  // guards are limited in number, and only some slabs get one.
  [[nodiscard]] std::size_t guard_bytes(bool) noexcept {
    if (!guards) return 0;
    if (light_guards_) return page_size();
    return may_have_heavy_guards() && random::own().below(kHeavyShare) == 0 ? page_size() : 0;
  }
  [[nodiscard]] bool guard(void* address, std::size_t bytes) noexcept {
    if (!guards) return false;
    if (light_guards_) return os::Linux::guard(address, bytes);
    if (!may_have_heavy_guards()) return false;
    if (heavy_guards_.fetch_add(1, std::memory_order_relaxed) < kMostHeavyGuards &&
        purge(address, bytes) && protect(address, bytes, PROT_NONE)) {
      return true;
    }
    heavy_guards_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  [[nodiscard]] bool unguard(void* address, std::size_t bytes) noexcept {
    if (light_guards_) return os::Linux::unguard(address, bytes);
    if (!protect(address, bytes, usable())) return false;
    heavy_guards_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  // See os::Erasing.
  [[nodiscard]] bool erase(void* address, std::size_t bytes) noexcept {
    if (!erases) return false;
    if (purge(address, bytes)) return true;
    __builtin_memset(address, 0, bytes);
    return false;
  }

  [[nodiscard]] bool scatters() const noexcept { return positions; }
  [[nodiscard]] static std::uint32_t draw(std::uint32_t bound) noexcept {
    return random::own().below(bound);
  }

  // Set from the options before start().
  static inline constinit bool addresses = true;
  static inline constinit bool positions = true;
  static inline constinit bool guards = true;
  static inline constinit bool erases = true;

 private:
  // Each guard adds two mappings. By default a process may have 65,530 (vm.max_map_count).
  static constexpr std::uint32_t kMostHeavyGuards = 8192;
  static constexpr std::uint32_t kHeavyShare = 4;

  [[nodiscard]] bool may_have_heavy_guards() const noexcept {
    return heavy_guards_.load(std::memory_order_relaxed) < kMostHeavyGuards &&
           !spares_mappings_.load(std::memory_order_relaxed);
  }
  // A page with other rights between two others takes three mappings. A refusal due to an
  // address-space limit does not count as lack of mappings.
  [[nodiscard]] bool lacks_mappings() noexcept {
    const std::size_t page = page_size();
    void* const pages = os::Linux::reserve(3 * page, page);
    if (pages == nullptr) return address_space_limit() == 0;
    const bool has = protect(reinterpret_cast<void*>(address_of(pages) + page), page, PROT_READ);
    unmap(pages, 3 * page);
    return !has;
  }
  // Protection of memory for blocks.
  [[nodiscard]] static long usable() noexcept {
    return PROT_READ | PROT_WRITE | (memory_tags::are_on() ? memory_tags::kProtection : 0);
  }

  static bool protect(void* address, std::size_t bytes, long protection) noexcept {
    return raw_syscall(SYS_mprotect, static_cast<long>(address_of(address)),
                       static_cast<long>(bytes), protection) == 0;
  }
  // In the middle half of the address space that every process has.
  [[nodiscard]] static Address random_address(std::size_t grain) noexcept {
    constexpr Address kSpan = Address{1} << (kAddressBits - 1);
    return align_down(kSpan / 2 + (static_cast<Address>(random::word()) & (kSpan - 1)), grain);
  }
  // Maps at `hint` if it is free, else anywhere. Null if there is no room.
  [[nodiscard]] static void* map_at(Address hint, std::size_t bytes, long protection) noexcept {
    const long result =
        raw_syscall(os::calls::kMap, static_cast<long>(hint), static_cast<long>(bytes), protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool failed = result < 0 && result > -4096;
    return failed ? nullptr : reinterpret_cast<void*>(result);
  }
  [[nodiscard]] void* map_between_guards(std::size_t bytes, long protection) noexcept {
    const std::size_t page = page_size();
    void* const all = map_at(random_address(page), bytes + 2 * page, PROT_NONE);
    if (all == nullptr) return nullptr;
    const Address inside = address_of(all) + page;
    void* const memory = reinterpret_cast<void*>(inside);
    if (protect(memory, bytes, protection)) return memory;
    unmap(all, bytes + 2 * page);
    return nullptr;
  }

  Address zeros_ = 0;
  std::size_t zeros_bytes_ = 0;
  bool scattered_ = false;
  bool map_is_whole_ = false;
  bool light_guards_ = false;
  std::atomic<std::uint32_t> heavy_guards_{0};
  std::atomic<bool> spares_mappings_{false};
};

static_assert(os::Shutting<HardenedLinux>);

}  // namespace allod

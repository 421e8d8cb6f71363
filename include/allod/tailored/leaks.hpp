// Leak reports: blocks in use, and where each was allocated.
#pragma once

#include <dlfcn.h>

#include "allod/tailored/checks.hpp"

namespace allod {

namespace tailored {

// A hash table of blocks in memory straight from the system, so that tools that search for pointers
// still see leaks. Used by one thread at a time.
template <class Value>
class BlockTable {
 public:
  struct Element {
    const void* block;  // null: free
    Value value;
  };

  constexpr BlockTable() noexcept = default;
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  ~BlockTable() { clear(); }

  // False without memory: the block is not recorded.
  bool insert(const void* block, const Value& value) noexcept {
    if (4 * (count_ + 1) > 3 * room_ && !grow()) return false;
    Element& element = elements_[place_of(block)];
    count_ += element.block == nullptr;
    element = {block, value};
    return true;
  }
  [[nodiscard]] Value* find(const void* block) noexcept {
    if (room_ == 0) return nullptr;
    Element& element = elements_[place_of(block)];
    return element.block == nullptr ? nullptr : &element.value;
  }
  // Elements behind it move up to their places.
  bool erase(const void* block) noexcept {
    if (room_ == 0) return false;
    std::size_t hole = place_of(block);
    if (elements_[hole].block == nullptr) return false;
    --count_;
    for (std::size_t at = next(hole); elements_[at].block != nullptr; at = next(at)) {
      const std::size_t home = home_of(elements_[at].block);
      if (((at - home) & (room_ - 1)) < ((at - hole) & (room_ - 1))) continue;
      elements_[hole] = elements_[at];
      hole = at;
    }
    elements_[hole] = {};
    return true;
  }
  void clear() noexcept {
    if (room_ != 0) system_.unmap(elements_, room_ * sizeof(Element));
    elements_ = nullptr;
    room_ = count_ = 0;
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  template <class Visit>
  void for_each(Visit&& visit) const noexcept {
    for (std::size_t i = 0; i < room_; ++i) {
      if (elements_[i].block != nullptr) visit(elements_[i].block, elements_[i].value);
    }
  }

 private:
  [[nodiscard]] std::size_t home_of(const void* block) const noexcept {
    return (address_of(block) * kMix >> 20) & (room_ - 1);
  }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & (room_ - 1); }
  [[nodiscard]] std::size_t place_of(const void* block) const noexcept {
    std::size_t at = home_of(block);
    while (elements_[at].block != nullptr && elements_[at].block != block) at = next(at);
    return at;
  }
  [[nodiscard]] bool grow() noexcept {
    const std::size_t room = room_ == 0 ? 1024 : 2 * room_;
    auto* const elements = static_cast<Element*>(system_.map(room * sizeof(Element)));
    if (elements == nullptr) return false;
    Element* const before = elements_;
    const std::size_t room_before = room_;
    elements_ = elements;
    room_ = room;
    for (std::size_t i = 0; i < room_before; ++i) {
      if (before[i].block != nullptr) elements_[place_of(before[i].block)] = before[i];
    }
    if (room_before != 0) system_.unmap(before, room_before * sizeof(Element));
    return true;
  }

  os::Linux system_;
  Element* elements_ = nullptr;
  std::size_t room_ = 0;  // a power of two
  std::size_t count_ = 0;
};

}  // namespace tailored

// Observer: at the end of the heap, reports the blocks in use on standard error by the place of
// their allocation, the most bytes first.
class LeakReport {
 public:
  static constexpr bool kWatches = true;

  void allocated(const void* block, std::size_t bytes, const Site& site) noexcept {
    blocks_.insert(block, {bytes, site});
  }
  void freed(const void* block) noexcept { blocks_.erase(block); }
  void ended(const char* heap_name) noexcept {
    if (blocks_.count() != 0) report(heap_name);
    blocks_.clear();
  }
  // Reports now; the heap goes on.
  void report(const char* heap_name) const noexcept {
    std::size_t bytes = 0;
    blocks_.for_each([&](const void*, const Block& block) noexcept { bytes += block.bytes; });
    tailored::say("heap '%s': still in use are %zu bytes in %zu block%s", heap_name, bytes,
                  blocks_.count(), blocks_.count() == 1 ? "" : "s");
    report_sites();
  }
  [[nodiscard]] std::size_t blocks_in_use() const noexcept { return blocks_.count(); }

 private:
  struct Block {
    std::size_t bytes;
    Site site;
  };
  struct Sum {
    Site site;
    std::size_t bytes;
    std::size_t blocks;
  };
  static constexpr int kMostSites = 64;

  // A line of source is one site, in all functions that it is compiled into.
  [[nodiscard]] static const void* key_of(const Site& site) noexcept {
    if (site.file == nullptr) return site.caller;
    return reinterpret_cast<const void*>(address_of(site.file) * 31 + site.line);
  }
  void report_sites() const noexcept {
    tailored::BlockTable<Sum> sites;
    blocks_.for_each([&](const void*, const Block& block) noexcept {
      if (Sum* const sum = sites.find(key_of(block.site))) {
        sum->bytes += block.bytes;
        ++sum->blocks;
      } else {
        sites.insert(key_of(block.site), {block.site, block.bytes, 1});
      }
    });
    for (int i = 0; i < kMostSites && sites.count() > 0; ++i) {
      Sum most{};
      sites.for_each([&](const void*, const Sum& sum) noexcept {
        if (sum.bytes > most.bytes || most.blocks == 0) most = sum;
      });
      say_site(most);
      sites.erase(key_of(most.site));
    }
    if (sites.count() > 0) tailored::say("  and %zu more places", sites.count());
  }
  static void say_site(const Sum& sum) noexcept {
    const char* const plural = sum.blocks == 1 ? "" : "s";
    if (sum.site.file != nullptr) {
      tailored::say("  %zu bytes in %zu block%s from %s:%u", sum.bytes, sum.blocks, plural,
                    sum.site.file, sum.site.line);
      return;
    }
    Dl_info info{};
    const bool known = dladdr(sum.site.caller, &info) != 0 && info.dli_fname != nullptr;
    const Address base = known ? address_of(info.dli_fbase) : 0;
    tailored::say("  %zu bytes in %zu block%s from %s+0x%zx", sum.bytes, sum.blocks, plural,
                  known ? info.dli_fname : "", address_of(sum.site.caller) - base);
  }

  tailored::BlockTable<Block> blocks_;
};

}  // namespace allod

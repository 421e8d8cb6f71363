// The dynamic symbols of a loaded object, from its dynamic section.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <type_traits>

#include "allod/base/base.hpp"
#include "allod/base/cpu.hpp"

namespace allod::os {

class SymbolTable {
 public:
  // `entry`: the dynamic section, or null. `address_of_table(value)` converts one of its entries to
  // an address; 0: unreadable.
  template <class AddressOfTable>
  SymbolTable(const ElfW(Dyn) * entry, AddressOfTable&& address_of_table) noexcept {
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      const auto set = [&](auto*& table) noexcept {
        table = reinterpret_cast<std::remove_reference_t<decltype(table)>>(
            address_of_table(Address{entry->d_un.d_ptr}));
      };
      if (entry->d_tag == DT_SYMTAB) set(symbols_);
      if (entry->d_tag == DT_STRTAB) set(names_);
      if (entry->d_tag == DT_GNU_HASH) set(hash_);
      if (entry->d_tag == DT_HASH) set(old_hash_);
    }
  }

  // The defined symbol of a name, or null. Reads little of a large table. Every program runs it
  // once.
  [[nodiscard]] ALLOD_HOT const ElfW(Sym) * find(const char* name) const noexcept {
    const ElfW(Sym)* found = nullptr;
    const auto look = [&](const ElfW(Sym) & symbol) noexcept {
      if (symbol.st_shndx == SHN_UNDEF || !is_same(names_ + symbol.st_name, name)) return;
      found = &symbol;
    };
    if (symbols_ == nullptr || names_ == nullptr) return nullptr;
    hash_ != nullptr ? visit_bucket(hash_of(name), look) : visit_all(look);
    return found;
  }

  // Calls visit(symbol, name) for each defined symbol.
  template <class Visit>
  void for_each(Visit&& visit) const noexcept {
    if (symbols_ == nullptr || names_ == nullptr) return;
    const auto look = [&](const ElfW(Sym) & symbol) noexcept {
      if (symbol.st_shndx != SHN_UNDEF) visit(symbol, names_ + symbol.st_name);
    };
    hash_ != nullptr ? visit_buckets(look) : visit_all(look);
  }

 private:
  [[nodiscard]] static bool is_same(const char* one, const char* other) noexcept {
    while (*one == *other && *one != '\0') ++one, ++other;
    return *one == *other;
  }
  [[nodiscard]] static std::uint32_t hash_of(const char* name) noexcept {
    std::uint32_t hash = 5381;
    for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
  }
  [[nodiscard]] const std::uint32_t* buckets() const noexcept {
    return hash_ + 4 + hash_[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  }

  // Each bucket leads to a run of symbols; the hash of the last one is odd.
  template <class Look>
  void visit_run(std::uint32_t bucket, Look&& look) const noexcept {
    const std::uint32_t first = hash_[1];
    const std::uint32_t* const chain = buckets() + hash_[0];
    std::uint32_t number = buckets()[bucket];
    if (number == 0 || number < first) return;
    do look(symbols_[number]);
    while ((chain[number++ - first] & 1) == 0);
  }
  template <class Look>
  void visit_buckets(Look&& look) const noexcept {
    for (std::uint32_t i = 0; i < hash_[0]; ++i) visit_run(i, look);
  }
  template <class Look>
  void visit_bucket(std::uint32_t hash, Look&& look) const noexcept {
    if (hash_[0] != 0) visit_run(hash % hash_[0], look);
  }
  template <class Look>
  void visit_all(Look&& look) const noexcept {
    const std::uint32_t count = old_hash_ != nullptr ? old_hash_[1] : 0;
    for (std::uint32_t i = 0; i < count; ++i) look(symbols_[i]);
  }

  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint32_t* old_hash_ = nullptr;
};

}  // namespace allod::os

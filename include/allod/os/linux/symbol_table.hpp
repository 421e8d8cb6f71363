// The dynamic symbols of a loaded object, from its dynamic section.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <type_traits>

#include "allod/base/base.hpp"

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
  // Each bucket leads to a run of symbols; the hash of the last one is odd.
  template <class Look>
  void visit_buckets(Look&& look) const noexcept {
    const std::uint32_t buckets = hash_[0];
    const std::uint32_t first = hash_[1];
    const std::uint32_t filter_words = hash_[2] * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
    const std::uint32_t* const bucket = hash_ + 4 + filter_words;
    const std::uint32_t* const chain = bucket + buckets;
    for (std::uint32_t i = 0; i < buckets; ++i) {
      std::uint32_t number = bucket[i];
      if (number == 0 || number < first) continue;
      do look(symbols_[number]);
      while ((chain[number++ - first] & 1) == 0);
    }
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

// The measures of the hardened library, as a set.
#pragma once

#include <cstdint>
#include <string_view>

namespace allod {

enum class Mitigation : std::uint8_t {
  canary,      // a secret word behind each block
  neighbours,  // a free also checks the end of the block before
  zero,        // freed blocks are zeroed
  written,     // and must still be zero when they leave the quarantine
  quarantine,  // a freed block is not reused at once
  shuffle,     // free blocks are handed out in random order
  guards,      // inaccessible memory behind slabs and large blocks
  empty,       // blocks of size 0 have no readable memory
  origin,      // delete matches new, free matches malloc
  addresses,   // memory at random addresses, guards around records
  positions,   // slabs at random places among the free ones
  sweep,       // a freed block is not reused while a pointer to it exists
  tags,        // pointers carry tags that must match their memory's
  history,     // reports name the stacks that allocated and freed a block
};

struct MitigationName {
  Mitigation mitigation;
  std::string_view name;
  bool is_usual = true;  // false: only if named
};
inline constexpr MitigationName kMitigationNames[] = {
    {Mitigation::canary, "canary"},
    {Mitigation::neighbours, "neighbours"},
    {Mitigation::zero, "zero"},
    {Mitigation::written, "written"},
    {Mitigation::quarantine, "quarantine"},
    {Mitigation::shuffle, "shuffle"},
    {Mitigation::guards, "guards"},
    {Mitigation::empty, "empty"},
    {Mitigation::origin, "origin"},
    {Mitigation::addresses, "addresses"},
    {Mitigation::positions, "positions"},
    {Mitigation::sweep, "sweep", false},
    {Mitigation::tags, "tags", false},
    {Mitigation::history, "history", false},
};

class Mitigations {
 public:
  constexpr Mitigations() noexcept = default;
  [[nodiscard]] static constexpr Mitigations all() noexcept {
    Mitigations set;
    for (const MitigationName& known : kMitigationNames) {
      if (known.is_usual) set = set.with(known.mitigation);
    }
    return set;
  }
  [[nodiscard]] constexpr bool has(Mitigation m) const noexcept { return (bits_ & bit(m)) != 0; }
  [[nodiscard]] constexpr bool has_all(Mitigations others) const noexcept {
    return (others.bits_ & ~bits_) == 0;
  }
  [[nodiscard]] constexpr Mitigations with(Mitigation m) const noexcept { return {bits_ | bit(m)}; }
  [[nodiscard]] constexpr Mitigations without(Mitigation m) const noexcept {
    return {bits_ & ~bit(m)};
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  friend constexpr Mitigations operator&(Mitigations a, Mitigations b) noexcept {
    return {a.bits_ & b.bits_};
  }

  // Parses names separated by commas. "all" or "none" may stand first; "-name" removes a measure,
  // from all of them if it is first. Returns false for unknown or empty names, and for "all" or
  // "none" in another place, where they would undo the names before them.
  [[nodiscard]] static constexpr bool parse(std::string_view text, Mitigations* result) noexcept {
    if (text.empty()) return false;
    Mitigations set = text.starts_with('-') ? all() : Mitigations{};
    for (bool is_first = true;; is_first = false) {
      const std::size_t comma = text.find(',');
      const bool is_last = comma == std::string_view::npos;
      if (!set.apply({text.data(), is_last ? text.size() : comma}, is_first)) return false;
      if (is_last) break;
      text.remove_prefix(comma + 1);
    }
    *result = set;
    return true;
  }
  // The same for a constant. An unknown name does not compile.
  [[nodiscard]] static consteval Mitigations named(std::string_view text) noexcept {
    Mitigations set;
    if (!parse(text, &set)) __builtin_unreachable();
    return set;
  }

 private:
  constexpr Mitigations(std::uint32_t bits) noexcept : bits_{bits} {}
  [[nodiscard]] static constexpr std::uint32_t bit(Mitigation m) noexcept {
    return 1U << static_cast<unsigned>(m);
  }
  constexpr bool apply(std::string_view word, bool is_first) noexcept {
    if (word == "all" || word == "none") {
      if (is_first) *this = word == "all" ? all() : Mitigations{};
      return is_first;
    }
    const bool out = word.starts_with('-');
    if (out) word.remove_prefix(1);
    for (const MitigationName& known : kMitigationNames) {
      if (known.name != word) continue;
      *this = out ? without(known.mitigation) : with(known.mitigation);
      return true;
    }
    return false;
  }

  std::uint32_t bits_ = 0;
};

}  // namespace allod

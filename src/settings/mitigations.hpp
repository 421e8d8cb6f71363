// The measures of the hardened library, as a set.
#pragma once

#include <cstdint>
#include <string_view>

namespace allod {

enum class Mitigation : std::uint8_t {
  canary,      // a secret word behind each block
  neighbours,  // a free also checks the end of the block before
  zero,        // freed blocks are zeroed
  written,     // and must still be zero when they are handed out again
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

// Sets with names, each with all measures of those before it.
enum class Level : std::uint8_t {
  none,
  light,     // what a free sees in lines that it touches anyway, and what costs nothing
  balanced,  // what needs no waiting
  all,
  named,  // no set: measures that are on only if named
};
struct LevelName {
  Level level;
  std::string_view name;
};
inline constexpr LevelName kLevelNames[] = {
    {Level::none, "none"},
    {Level::light, "light"},
    {Level::balanced, "balanced"},
    {Level::all, "all"},
};

struct MitigationName {
  Mitigation mitigation;
  std::string_view name;
  Level level;  // the first that has it
};
inline constexpr MitigationName kMitigationNames[] = {
    {Mitigation::canary, "canary", Level::light},
    {Mitigation::neighbours, "neighbours", Level::balanced},
    {Mitigation::zero, "zero", Level::balanced},
    {Mitigation::written, "written", Level::balanced},
    {Mitigation::quarantine, "quarantine", Level::all},
    {Mitigation::shuffle, "shuffle", Level::all},
    {Mitigation::guards, "guards", Level::light},
    {Mitigation::empty, "empty", Level::light},
    {Mitigation::origin, "origin", Level::light},
    {Mitigation::addresses, "addresses", Level::light},
    {Mitigation::positions, "positions", Level::light},
    {Mitigation::sweep, "sweep", Level::named},
    {Mitigation::tags, "tags", Level::named},
    {Mitigation::history, "history", Level::named},
};

class Mitigations {
 public:
  constexpr Mitigations() noexcept = default;
  [[nodiscard]] static constexpr Mitigations of(Level level) noexcept {
    Mitigations set;
    for (const MitigationName& known : kMitigationNames) {
      if (known.level <= level) set = set.with(known.mitigation);
    }
    return set;
  }
  [[nodiscard]] static constexpr Mitigations all() noexcept { return of(Level::all); }
  [[nodiscard]] constexpr bool has(Mitigation m) const noexcept { return (bits_ & bit(m)) != 0; }
  [[nodiscard]] constexpr bool has_all(Mitigations others) const noexcept {
    return (others.bits_ & ~bits_) == 0;
  }
  [[nodiscard]] constexpr Mitigations with(Mitigation m) const noexcept { return {bits_ | bit(m)}; }
  [[nodiscard]] constexpr Mitigations without(Mitigation m) const noexcept {
    return {bits_ & ~bit(m)};
  }
  [[nodiscard]] constexpr bool empty() const noexcept { return bits_ == 0; }
  friend constexpr bool operator==(Mitigations, Mitigations) noexcept = default;
  friend constexpr Mitigations operator&(Mitigations a, Mitigations b) noexcept {
    return {a.bits_ & b.bits_};
  }

  // Parses names separated by commas. A level may stand first; "-name" removes a measure, from all
  // of them if it is first. Returns false for unknown or empty names, and for a level in another
  // place, where it would undo the names before it.
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
    for (const LevelName& known : kLevelNames) {
      if (known.name != word) continue;
      if (is_first) *this = of(known.level);
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

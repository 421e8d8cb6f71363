// The heap profile: allocations by call stack. thread/counting.hpp draws the samples.
#pragma once

#include "allod.h"
#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod::profile {

inline constexpr std::size_t kUsualInterval = std::size_t{512} << 10;

// Like the functions of allod.h with the same endings. Thread-safe.
void reset() noexcept;
void summarise(allod_profile_summary_t& summary) noexcept;
int visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept;
int visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept;
int visit_classes(allod_profile_class_visit_t visit, void* context) noexcept;
void write(Text& out) noexcept;

// Ends the stacks with frames in [begin, end), whose code was unloaded: the same frames make a new
// stack from now on. If `is_known`, the same code is expected back, and the stacks continue.
// Returns the number of the latest stack; 0 if none has frames there.
std::uint64_t end_stacks_in(Address begin, Address end, bool is_known) noexcept;

// --- for the leak search ---

// A sample in use.
struct Suspect {
  enum Leak : std::uint8_t { kNone, kDirect, kIndirect };
  static constexpr std::size_t kUnit = 8;
  static constexpr std::size_t kLarge = 4095;

  std::uint64_t begin : 48;
  std::uint64_t leak : 2;         // one of Leak
  std::uint64_t is_new : 1;       // allocated after forgive()
  std::uint64_t is_readable : 1;  // for the search
  std::uint64_t units : 12;       // of what can be read, in kUnit bytes; kLarge: its sample tells
  std::uint32_t sample;           // its number
  std::uint32_t link;             // for the search

  [[nodiscard]] Address start() const noexcept { return static_cast<Address>(begin); }
};
static_assert(sizeof(Suspect) == 16);
// Samples now in use will never count as leaks.
void forgive() noexcept;
// During its lifetime, samples neither come nor go.
class AtRest {
 public:
  AtRest() noexcept;
  ~AtRest();
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

  [[nodiscard]] std::size_t count() const noexcept;
  void list(Suspect* suspects) const noexcept;
  // Of what can be read. `begin` if the block was freed and waits.
  [[nodiscard]] static Address end_of(const Suspect& suspect) noexcept {
    if (suspect.units == Suspect::kLarge) return end_of_large(suspect);
    return suspect.start() + suspect.units * Suspect::kUnit;
  }
  // Adds up leaks by stack.
  static void note(const Suspect* suspects, std::size_t count) noexcept;

 private:
  [[nodiscard]] static Address end_of_large(const Suspect& suspect) noexcept;
};
// Writes the sums of the last note() in the profile's format: `live` for direct leaks, `total` for
// all.
void write_leaks(Text& out) noexcept;
int visit_leaks(allod_profile_stack_visit_t visit, void* context) noexcept;
// The same for people, without file names and lines.
void show_leaks(Text& out) noexcept;

// Fork handlers.
void lock() noexcept;
void unlock() noexcept;
void reset_lock_after_fork() noexcept;

}  // namespace allod::profile

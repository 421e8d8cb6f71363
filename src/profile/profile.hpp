// The heap profile: which call stacks have allocated what. Samples are drawn in
// thread/counting.hpp; here is what is known of them.
#pragma once

#include "allod.h"
#include "instance/process.hpp"
#include "text/text.hpp"

namespace allod::profile {

inline constexpr std::size_t kUsualInterval = std::size_t{512} << 10;

// As the functions of allod.h whose names end alike. Thread-safe.
void reset() noexcept;
void summarise(allod_profile_summary_t& summary) noexcept;
int visit_stacks(allod_profile_stack_visit_t visit, void* context) noexcept;
int visit_blocks(allod_profile_block_visit_t visit, void* context) noexcept;
int visit_classes(allod_profile_class_visit_t visit, void* context) noexcept;
void write(Text& out) noexcept;

// The code in [begin, end) is no more: stacks with frames there are complete, unless it is `known`
// to come back, and the same frames are another stack from now on. Returns the number of the last
// stack so far; 0: none has frames there.
std::uint64_t end_stacks_in(Address begin, Address end, bool is_known) noexcept;

// --- for whoever looks for leaks ---

// A sample in use.
struct Suspect {
  enum class Leak : unsigned char { none, direct, indirect };
  Address begin;
  Address end;
  void* sample;
  Leak leak;
  bool is_new;  // came after forgive()
};
// What is in use now does not leak, whatever happens to it.
void forgive() noexcept;
// While it exists, no sample comes or goes.
class AtRest {
 public:
  AtRest() noexcept;
  ~AtRest();
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

  [[nodiscard]] std::size_t count() const noexcept;
  void list(Suspect* suspects) const noexcept;
  // Adds up by stack what leaks.
  void note(const Suspect* suspects, std::size_t count) noexcept;
};
// What note() added up last: `live` is what leaks directly, `total` all that leaks. In the form of
// the profile.
void write_leaks(Text& out) noexcept;
int visit_leaks(allod_profile_stack_visit_t visit, void* context) noexcept;
// The same for people, without names of files and lines.
void show_leaks(Text& out) noexcept;

// Around a fork.
void lock() noexcept;
void unlock() noexcept;
void reset_lock_after_fork() noexcept;

}  // namespace allod::profile

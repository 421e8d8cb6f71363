#include "both.hpp"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <unwind.h>

#include <cstddef>
#include <cstdint>

#include "unwind/unwinder.hpp"

namespace {

using namespace allod;

constexpr std::uint32_t kMost = 100;

struct Frames {
  std::uint32_t count = 0;
  std::uintptr_t at[kMost];
};

struct Capture {
  Frames frames;
  bool waits_for_signal = false;
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto& [frames, waits_for_signal] = *static_cast<Capture*>(argument);
  int is_exact = 0;
  const std::uintptr_t place = _Unwind_GetIPInfo(context, &is_exact);
  if (place == 0 || frames.count == kMost) return _URC_END_OF_STACK;
  if (waits_for_signal && is_exact == 0) return _URC_NO_REASON;
  waits_for_signal = false;
  frames.at[frames.count++] = place;
  return _URC_NO_REASON;
}

void write_all(const char* name, const Frames& frames) {
  dprintf(STDERR_FILENO, "%s:", name);
  for (std::uint32_t i = 0; i < frames.count; ++i) {
    dprintf(STDERR_FILENO, " %#lx", static_cast<unsigned long>(frames.at[i]));
  }
  dprintf(STDERR_FILENO, "\n");
}

thread_local unsigned last_count = 0;

// The first frame is that of this library, which is left at two places.
void compare(const Frames& ours, const Frames& theirs, std::uint32_t first) {
  bool same = ours.count == theirs.count;
  for (std::uint32_t i = first; same && i < ours.count; ++i) same = ours.at[i] == theirs.at[i];
  if (same) return;
  dprintf(STDERR_FILENO, "the walks differ\n");
  write_all("ours", ours);
  write_all("theirs", theirs);
  _exit(3);
}

}  // namespace

bool same_by_both() {
  Capture theirs;
  Frames ours;
  const auto here = unwind::registers_here();
  bool is_whole =
      unwind::walk(here, unwind::From::here, ours.at, kMost, &ours.count) == unwind::Outcome::whole;
  _Unwind_Backtrace(&take_frame, &theirs);
  if (is_whole) compare(ours, theirs.frames, 1);
  last_count = theirs.frames.count;

  theirs.frames.count = 0;
  theirs.waits_for_signal = true;
  is_whole &= unwind::walk(here, unwind::From::interruption, ours.at, kMost, &ours.count) ==
              unwind::Outcome::whole;
  _Unwind_Backtrace(&take_frame, &theirs);
  if (is_whole) compare(ours, theirs.frames, 0);
  return is_whole;
}

unsigned frames_by_both() { return last_count; }

unsigned frames_by_ours() {
  Frames ours;
  static_cast<void>(
      unwind::walk(unwind::registers_here(), unwind::From::here, ours.at, kMost, &ours.count));
  return ours.count;
}

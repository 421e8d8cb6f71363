// The heap profile as text for pprof, and counts by thread and class.
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "profile/book.hpp"
#include "profile/closed_files.hpp"
#include "profile/functions.hpp"
#include "profile/profile.hpp"
#include "unwind/backtrace.hpp"

namespace allod::profile {

namespace {

using Heap = Process::Heap;
constexpr ClassIndex kClasses = Heap::kClasses;

void write_mappings(Text& out) noexcept {
  out << "\nMAPPED_LIBRARIES:\n";
  const long file = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/maps"),
                                O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  char buffer[4096];
  for (;;) {
    const long got = raw_syscall(SYS_read, file, reinterpret_cast<long>(buffer), sizeof buffer);
    if (got <= 0) break;
    out << std::string_view{buffer, static_cast<std::size_t>(got)};
  }
  raw_syscall(SYS_close, file);
  write_closed_files(out);
}

// The number behind the given count of spaces in a line whose second word is in brackets.
std::uint64_t number_in(std::string_view line, unsigned spaces) noexcept {
  std::size_t at = line.rfind(')');
  for (; at != line.npos && spaces > 0; --spaces) at = line.find(' ', at + 1);
  std::uint64_t number = 0;
  for (++at; at < line.size() && line[at] >= '0' && line[at] <= '9'; ++at) {
    number = 10 * number + static_cast<unsigned>(line[at] - '0');
  }
  return number;
}

std::uint64_t seconds_of(long clock) noexcept {
  timespec now{};
  raw_syscall(SYS_clock_gettime, clock, reinterpret_cast<long>(&now));
  return static_cast<std::uint64_t>(now.tv_sec);
}

// Its id, and when it began, in seconds since 1970: by these, readers find what its compilers at
// run time have written about their code.
void write_process(Text& out) noexcept {
  out << " process " << static_cast<std::int64_t>(raw_syscall(SYS_getpid));
  char line[1024];
  const long file = raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/stat"),
                                O_RDONLY | O_CLOEXEC);
  const long got =
      file < 0 ? -1 : raw_syscall(SYS_read, file, reinterpret_cast<long>(line), sizeof line);
  if (file >= 0) raw_syscall(SYS_close, file);
  if (got > 0) {
    constexpr unsigned kStart = 20;   // behind the name
    constexpr unsigned kTicks = 100;  // of a second, on all processors that Allod knows
    const std::uint64_t after_boot =
        number_in({line, static_cast<std::size_t>(got)}, kStart) / kTicks;
    const std::uint64_t now = seconds_of(CLOCK_BOOTTIME);
    if (after_boot <= now) out << " began " << seconds_of(CLOCK_REALTIME) - (now - after_boot);
  }
  out << "\n";
}

void write_sums(Text& out, const allod_profile_sum_t& live,
                const allod_profile_sum_t& total) noexcept {
  out << live.blocks << ": " << live.bytes << " [" << total.blocks << ": " << total.bytes << "] @";
}

int write_stack(const allod_profile_stack_t* stack, void* context) noexcept {
  if (stack->live.blocks + stack->total.blocks + stack->peak.blocks == 0) return 0;
  Text& out = *static_cast<Text*>(context);
  write_sums(out, stack->live, stack->total);
  for (std::size_t i = 0; i < stack->depth; ++i) out << " " << Hex{stack->frames[i]};
  // pprof ignores these lines.
  out << "\n# id " << stack->id << " peak " << stack->peak.blocks << " " << stack->peak.bytes
      << " requested " << stack->live.requested << " " << stack->peak.requested << " "
      << stack->total.requested << " samples " << stack->live_samples << " " << stack->total_samples
      << " age " << stack->mean_age_ms << " lifetime " << stack->mean_lifetime_ms << "\n";
  return 0;
}

// The length of a period in milliseconds, and for each the most bytes in use, and the bytes ever
// allocated at its end.
[[gnu::noinline]] void write_timeline(Text& out) noexcept {
  Timeline copy;
  {
    LockGuard lock{book.lock};
    copy = timeline;
  }
  if (copy.count() == 0) return;
  const auto rounded = [](std::uint64_t bytes_x256) { return (bytes_x256 + 128) / 256; };
  out << "# timeline " << copy.period_ms();
  for (std::size_t i = 0; i < copy.count(); ++i) {
    out << " " << rounded(copy[i].live) << " " << rounded(copy[i].total);
  }
  out << "\n";
}

}  // namespace

// The gperftools format, with estimates instead of samples, so that readers do not scale them.
void write(Text& out) noexcept {
  allod_profile_summary_t summary;
  summarise(summary);
  out << "heap profile: ";
  write_sums(out, summary.live, summary.total);
  out << " heap_v2/1\n# allod interval " << std::uint64_t{summary.interval} << " peak "
      << summary.peak.blocks << " " << summary.peak.bytes << " requested " << summary.live.requested
      << " " << summary.peak.requested << " " << summary.total.requested << " samples "
      << summary.live_samples << " " << summary.total_samples << " lost " << summary.lost_samples
      << " since " << summary.since_ms;
  write_process(out);
  write_timeline(out);
  static_cast<void>(visit_stacks(&write_stack, &out));
  write_functions(out);
  write_mappings(out);
}

void write_leaks(Text& out) noexcept {
  out << "heap profile: 0: 0 [0: 0] @ heap_v2/1\n# allod interval 1";
  write_process(out);
  static_cast<void>(visit_leaks(&write_stack, &out));
  write_functions(out);
  write_mappings(out);
}

// --- counts by thread and class -------------------------------------------------------------

namespace {

// Counts of one thread or shared domain, by class.
struct Rows {
  std::uint32_t thread = 0;
  std::uint32_t domain = 0;
  struct Row {
    std::uint64_t slabs, used, cached, allocated, freed;
    [[nodiscard]] bool is_empty() const noexcept {
      return (slabs | used | cached | allocated | freed) == 0;
    }
  } of[kClasses + 1] = {};

  void count_front(const Process::Front& front, bool is_shared = false) noexcept {
    for (ClassIndex c = 0; c <= kClasses; ++c) {
      if (!is_shared) {
        const Process::Total total = Process::total_of(front, c);
        of[c].allocated += total.allocated;
        of[c].freed += total.freed;
      }
      if (c < kClasses) of[c].cached += front.cached(c);
    }
  }
  void count_span(const space::Span& span, const Heap::Domain* owner) noexcept {
    if (span.state != space::SpanState::used || span.home == nullptr) return;
    const auto& slab = static_cast<const slab::Slab&>(span);
    const slab::Owner* const wanted = owner;
    if (slab.size_class() >= kClasses || slab.owner() != wanted) return;
    Row& row = of[slab.size_class()];
    ++row.slabs;
    row.used += slab.capacity() - slab.free_count() - slab.remote_count();
  }
  // Blocks in magazines are free, although their slabs count them as used.
  void take_off(const Process::Front& front) noexcept {
    for (ClassIndex c = 0; c < kClasses; ++c) {
      const std::uint64_t cached = front.cached(c);
      of[c].used -= cached < of[c].used ? cached : of[c].used;
    }
  }
  int tell(allod_profile_class_visit_t visit, void* context) const noexcept {
    for (ClassIndex c = 0; c <= kClasses; ++c) {
      const Row& row = of[c];
      if (row.is_empty()) continue;
      const std::size_t size = c < kClasses ? Process::Sizes::size_of(c) : 0;
      const allod_profile_class_t told{thread,   domain,     size,          row.slabs,
                                       row.used, row.cached, row.allocated, row.freed};
      if (const int result = visit(&told, context)) return result;
    }
    return 0;
  }
};

}  // namespace

int visit_classes(allod_profile_class_visit_t visit, void* context) noexcept {
  Process::ensure_started();
  Heap& heap = Process::heap();
  Heap::Domain* domain = nullptr;
  for (;;) {
    Rows rows;
    {
      LockGuard guard{heap.registry_lock()};
      domain = heap.next_domain(domain);
      if (domain == nullptr) break;
      if (domain->state == heap::DomainState::pooled) continue;
      rows.thread = domain->thread;
      rows.domain = domain->id() / 2;
      rows.count_front(*domain, domain->state == heap::DomainState::shared);
      heap.space().for_each_span([&](const space::Span& span) { rows.count_span(span, domain); });
    }
    rows.take_off(*domain);
    Heap::for_each_cache(*domain, [&](const Heap::Cache& cache) { rows.take_off(cache); });
    if (const int result = rows.tell(visit, context)) return result;
    // Threads with a cache over this domain. Caches are never freed.
    for (Heap::Cache* cache = domain->caches.load(std::memory_order_acquire); cache != nullptr;
         cache = cache->next) {
      if (!cache->is_used) continue;
      Rows own;
      own.thread = cache->thread;
      own.domain = domain->id() / 2;
      own.count_front(*cache);
      if (const int result = own.tell(visit, context)) return result;
    }
  }
  Rows others;
  for (ClassIndex c = 0; c <= kClasses; ++c) {
    const Process::Total total = Process::total_elsewhere(c);
    others.of[c].allocated = total.allocated;
    others.of[c].freed = total.freed;
  }
  return others.tell(visit, context);
}

namespace {

bool find_other_place(Address frame, std::uint64_t stack, LoadedPlace* place) noexcept {
  Function function;
  if (!find_function(frame + 1, &function)) return find_closed_place(frame, stack, place);
  *place = {.file = function.file, .name = function.name, .line = function.line};
  return true;
}

}  // namespace

void show_leaks(Text& out) noexcept {
  const auto show = [](const allod_profile_stack_t* leak, void* context) {
    Text& text = *static_cast<Text*>(context);
    text << "\nallod:   " << leak->total.requested << " bytes in " << leak->total.blocks
         << " blocks" << (leak->live.blocks == 0 ? ", reached from other leaks" : "")
         << ", allocated at:";
    Stack stack;
    stack.depth = leak->depth < Stack::kDepth ? static_cast<std::uint32_t>(leak->depth)
                                              : static_cast<std::uint32_t>(Stack::kDepth);
    memcpy(stack.frames, leak->frames, stack.depth * sizeof stack.frames[0]);
    allod::write_stack(text, stack, &find_other_place, leak->id);
    return 0;
  };
  static_cast<void>(visit_leaks(show, &out));
}

}  // namespace allod::profile

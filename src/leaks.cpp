// The search for leaks: what a conservative collector would free. After the mark phase of H.
// Boehm's collector, and LeakSanitizer's distinction of what leaks directly and what only leaks
// with it.
#include "leaks.hpp"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include <algorithm>

#include "allod.h"
#include "hardened.hpp"
#include "mappings.hpp"
#include "memory_tags.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "profile.hpp"
#include "stop_threads.hpp"

namespace allod::leaks {

namespace {

using profile::Suspect;
using Leak = Suspect::Leak;

// Suspects by address, and those of them that have been reached but not been looked into. In memory
// of its own, which no search looks at.
class Graph {
 public:
  explicit Graph(std::size_t count) noexcept
      : count_{count}, bytes_{align_up(count * (sizeof(Suspect) + sizeof(std::size_t)) + 1, 4096)} {
    memory_ = Process::heap().space().platform().map(bytes_);
    suspects_ = static_cast<Suspect*>(memory_);
    waiting_ = reinterpret_cast<std::size_t*>(suspects_ + count);
  }
  ~Graph() {
    if (memory_ != nullptr) Process::heap().space().platform().unmap(memory_, bytes_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return memory_ != nullptr; }
  [[nodiscard]] Suspect* suspects() noexcept { return suspects_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool holds(Address at) const noexcept { return at - address_of(memory_) < bytes_; }

  [[nodiscard]] bool is_within_suspect(Address at) const noexcept { return find(at) != kNone; }

  void sort() noexcept {
    std::sort(suspects_, suspects_ + count_,
              [](const Suspect& a, const Suspect& b) { return a.begin < b.begin; });
    if (count_ == 0) return;
    lowest_ = suspects_[0].begin;
    highest_ = suspects_[count_ - 1].end;
  }
  // What the words in [from, to) lead to does not leak, or only indirectly.
  void mark_from(Address from, Address to, Leak becomes, std::size_t but = kNone) noexcept {
    mark_range(from, to, becomes, but);
    while (depth_ > 0) {
      const Suspect& next = suspects_[waiting_[--depth_]];
      mark_range(next.begin, next.end, becomes, but);
    }
  }
  // What leaks is sorted into heads, and what they lead to.
  void find_heads() noexcept {
    for (std::size_t i = 0; i < count_; ++i) {
      const Suspect& suspect = suspects_[i];
      if (suspect.leak == Leak::direct) {
        mark_from(suspect.begin, suspect.end, Leak::indirect, i);
      }
    }
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void mark_range(Address from, Address to, Leak becomes, std::size_t but) noexcept {
    from = align_up(from, sizeof(Address));
    const memory_tags::Unchecked unchecked;
    for (; from + sizeof(Address) <= to; from += sizeof(Address)) {
      const Address word = memory_tags::bare(*reinterpret_cast<const volatile Address*>(from));
      if (word - lowest_ >= highest_ - lowest_) continue;
      const std::size_t found = find(word);
      if (found == kNone || found == but) continue;
      Suspect& suspect = suspects_[found];
      if (suspect.leak != Leak::direct) continue;
      suspect.leak = becomes;
      waiting_[depth_++] = found;
    }
  }
  [[nodiscard]] std::size_t find(Address word) const noexcept {
    const Suspect* const behind =
        std::upper_bound(suspects_, suspects_ + count_, word,
                         [](Address at, const Suspect& suspect) { return at < suspect.begin; });
    if (behind == suspects_ || word >= behind[-1].end) return kNone;
    return static_cast<std::size_t>(behind - suspects_) - 1;
  }

  std::size_t count_;
  std::size_t bytes_;
  void* memory_;
  Suspect* suspects_;
  std::size_t* waiting_;
  std::size_t depth_ = 0;
  Address lowest_ = 0;
  Address highest_ = 0;
};

// --- what a search begins with ---------------------------------------------------------------

// Is it ours, and no place where a program keeps pointers?
bool is_bookkeeping(Address at, const Graph& graph) noexcept {
  return graph.holds(at) || Process::heap().space().metadata().holds(at) || OwnData{}.holds(at);
}

// Would a look there be a fault?
bool is_guarded(Address at) noexcept {
  if (Process::heap().is_guarded(reinterpret_cast<const void*>(at))) return true;
  if constexpr (Policy::kBlockStates) {
    return hardened::is_closed(reinterpret_cast<const void*>(at));
  }
  return false;
}

// Blocks are looked into when something leads to them. Those that are no samples always count.
bool is_of_suspects(Address at, const Graph& graph) noexcept {
  const space::Tag tag = Process::heap().space().map().tag_of(at);
  if (space::owner_of(tag) == Profile::owner() || tag == space::kFreeTag) return true;
  if ((tag == space::kInteriorTag || tag == space::kHugeTag) &&
      Process::heap().is_kept(*Process::heap().space().map().span_of(at))) {
    return true;
  }
  const auto* const memory = reinterpret_cast<const void*>(at);
  if (Guards::holds(memory)) return graph.is_within_suspect(Guards::block_on_page(memory));
  return (tag == space::kHugeTag || tag == space::kInteriorTag) && graph.is_within_suspect(at);
}

void mark_from_mapping(const DataMapping& mapping, const StoppedThreads& stopped, Address own_stack,
                       Graph& graph) noexcept {
  Address begin = mapping.begin;
  const Address to = mapping.end;
  if (own_stack >= begin && own_stack < to) {
    begin = own_stack;
  } else {
    begin = stopped.used_from(begin, to);
  }
  const std::size_t page = Process::heap().space().platform().page_size();
  while (begin < to) {
    const Address next = align_down(begin, page) + page;
    const Address piece = next < to ? next : to;
    if (!is_bookkeeping(begin, graph) && !is_of_suspects(begin, graph) && !is_guarded(begin)) {
      graph.mark_from(begin, piece, Leak::none);
    }
    begin = piece;
  }
}

bool mark_from_roots(const StoppedThreads& stopped, Address own_stack, Graph& graph) noexcept {
  static MappingLines lines;
  return for_each_data_mapping(lines, [&](const DataMapping& mapping) noexcept {
    mark_from_mapping(mapping, stopped, own_stack, graph);
  });
}

// All registers of the caller are on its stack by now.
[[gnu::noinline]] long search(Graph& graph, profile::AtRest& at_rest) noexcept {
  const Address own_stack = address_of(__builtin_frame_address(0));
  at_rest.list(graph.suspects());
  graph.sort();
  {
    const StoppedThreads stopped;
    if (!mark_from_roots(stopped, own_stack, graph)) return -1;
    for (std::size_t i = 0; i < graph.count(); ++i) {
      const Suspect& suspect = graph.suspects()[i];
      if (suspect.leak == Leak::direct && !suspect.is_new) {
        // What leads to it does not matter, nor what it leads to.
        graph.suspects()[i].leak = Leak::none;
        graph.mark_from(suspect.begin, suspect.end, Leak::none);
      }
    }
    graph.find_heads();
  }
  at_rest.note(graph.suspects(), graph.count());
  long leaking = 0;
  for (std::size_t i = 0; i < graph.count(); ++i) {
    if (graph.suspects()[i].leak != Leak::none) ++leaking;
  }
  return leaking;
}

long find() noexcept {
  __builtin_unwind_init();
  profile::AtRest at_rest;
  Graph graph{at_rest.count()};
  return graph.is_there() ? search(graph, at_rest) : -1;
}

void tell(long leaking) noexcept {
  if (settings().leaks_file == nullptr) {
    if (leaking <= 0) return;
    Message message;
    message << "error: " << std::int64_t{leaking} << " blocks leak";
    profile::show_leaks(message);
    return;
  }
  const OutputFile file{settings().leaks_file, ""};
  const long descriptor = file.open();
  if (descriptor < 0) {
    Message{} << "warning: cannot write leaks to " << file.path() << " (error " << -descriptor
              << ")";
    return;
  }
  int context = static_cast<int>(descriptor);
  {
    DescriptorText out{static_cast<int>(descriptor)};
    profile::write_leaks(out);
  }
  raw_syscall(SYS_close, descriptor);
}

}  // namespace

void begin() noexcept { profile::forgive(); }

long check() noexcept {
  const long leaking = find();
  tell(leaking);
  return leaking;
}

void check_at_end() noexcept {
  if (settings().leaks) static_cast<void>(check());
}

}  // namespace allod::leaks

extern "C" {
void allod_leaks_begin() noexcept { allod::leaks::begin(); }
long allod_leaks_check() noexcept { return allod::leaks::check(); }
}

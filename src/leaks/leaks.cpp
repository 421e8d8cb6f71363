// The leak search: finds the blocks that a conservative collector would free. After the mark phase
// of H. Boehm's collector, and LeakSanitizer's distinction of direct and indirect leaks.
#include "leaks/leaks.hpp"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>

#include <algorithm>

#include "allod.h"
#include "guards/guards.hpp"
#include "hardened/hardened.hpp"
#include "instance/memory_tags.hpp"
#include "profile/profile.hpp"
#include "scan/mappings.hpp"
#include "scan/own_frames.hpp"
#include "scan/page_reader.hpp"
#include "settings/options.hpp"
#include "stop/ended_threads.hpp"
#include "stop/stop_threads.hpp"
#include "text/output_file.hpp"

namespace allod::leaks {

namespace {

using profile::Suspect;
using Leak = Suspect::Leak;

// Suspects sorted by address, and those reached but not scanned, linked. Lives in memory that no
// search reads.
class Graph {
 public:
  explicit Graph(std::size_t count) noexcept
      : count_{count}, parts_{std::max(count / kInPart, kFewestParts)} {
    bytes_ = align_up(
        sizeof(PageReader::Memory) + count * sizeof(Suspect) + (parts_ + 1) * sizeof(std::uint32_t),
        4096);
    memory_ = Process::heap().space().platform().map(bytes_);
    if (memory_ == nullptr) return;
    // Pointers lead anywhere in it.
    Process::heap().space().platform().prefer_huge(memory_, bytes_);
    suspects_ = reinterpret_cast<Suspect*>(static_cast<PageReader::Memory*>(memory_) + 1);
    firsts_ = reinterpret_cast<std::uint32_t*>(suspects_ + count);
  }
  ~Graph() {
    if (memory_ != nullptr) Process::heap().space().platform().unmap(memory_, bytes_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  [[nodiscard]] bool is_there() const noexcept { return memory_ != nullptr; }
  [[nodiscard]] PageReader::Memory& reader_memory() noexcept {
    return *static_cast<PageReader::Memory*>(memory_);
  }
  [[nodiscard]] Suspect* suspects() noexcept { return suspects_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] bool holds(Address at) const noexcept { return at - address_of(memory_) < bytes_; }

  [[nodiscard]] bool is_within_suspect(Address at) const noexcept { return find(at) != kNone; }

  void sort() noexcept {
    std::sort(suspects_, suspects_ + count_,
              [](const Suspect& a, const Suspect& b) { return a.begin < b.begin; });
    if (count_ == 0) return;
    lowest_ = suspects_[0].start();
    highest_ = end_of(suspects_[count_ - 1]);
    while ((highest_ - lowest_) >> shift_ >= parts_) ++shift_;
    std::size_t part = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t of_this = (suspects_[i].start() - lowest_) >> shift_;
      while (part <= of_this) firsts_[part++] = static_cast<std::uint32_t>(i);
    }
    while (part <= parts_) firsts_[part++] = static_cast<std::uint32_t>(count_);
  }

  // Marks suspects to which the words point. Until follow_roots(), they are not queued.
  void mark(const volatile Address* words, std::size_t number, Leak becomes,
            std::size_t but) noexcept {
    for (std::size_t i = 0; i < number; ++i) {
      const Address word = memory_tags::bare(words[i]);
      if (word - lowest_ >= highest_ - lowest_) continue;
      const std::size_t found = find(word);
      if (found == kNone || found == but) continue;
      Suspect& suspect = suspects_[found];
      if (suspect.leak != Leak::kDirect) continue;
      suspect.leak = becomes & 3U;
      if (follows_) queue(found);
    }
  }
  // Queues what the roots lead to. Before, links count pages.
  void follow_roots() noexcept {
    follows_ = true;
    for (std::size_t i = 0; i < count_; ++i) {
      Suspect& suspect = suspects_[i];
      suspect.is_readable = has_noted_all(suspect);
      if (suspect.leak == Leak::kNone) queue(i);
    }
  }
  // The next suspect to scan, or null.
  [[nodiscard]] const Suspect* next() noexcept {
    if (queued_ == 0) return nullptr;
    const Suspect* const suspect = &suspects_[queued_ - 1];
    queued_ = suspect->link;
    return suspect;
  }

  // Notes that a page within a suspect is readable directly.
  void note_page(Address page) noexcept {
    const std::size_t found = find(page);
    if (found != kNone && page + page_ <= end_of(suspects_[found])) ++suspects_[found].link;
  }

  static constexpr std::size_t kNone = ~std::size_t{0};

 private:
  static constexpr std::size_t kInPart = 6;  // on the average
  static constexpr std::size_t kFewestParts = 1024;

  [[nodiscard]] static Address end_of(const Suspect& suspect) noexcept {
    return profile::AtRest::end_of(suspect);
  }
  // Whether all whole pages in it were noted. A page that it shares with others is always readable.
  [[nodiscard]] bool has_noted_all(const Suspect& suspect) const noexcept {
    const Address begin = align_up(suspect.start(), page_);
    const Address end = align_down(end_of(suspect), page_);
    return begin >= end || suspect.link == (end - begin) / page_;
  }
  void queue(std::size_t index) noexcept {
    __builtin_prefetch(reinterpret_cast<const void*>(suspects_[index].start()));
    suspects_[index].link = static_cast<std::uint32_t>(queued_);
    queued_ = index + 1;
  }
  // `word` must be within the range of all suspects.
  [[nodiscard]] std::size_t find(Address word) const noexcept {
    if (word - lowest_ >= highest_ - lowest_) return kNone;
    const std::uint32_t* const first = firsts_ + ((word - lowest_) >> shift_);
    const Suspect* const behind =
        std::upper_bound(suspects_ + first[0], suspects_ + first[1], word,
                         [](Address at, const Suspect& suspect) { return at < suspect.begin; });
    if (behind == suspects_ || word >= end_of(behind[-1])) return kNone;
    return static_cast<std::size_t>(behind - suspects_) - 1;
  }

  std::size_t count_;
  std::size_t parts_;  // into which the addresses from the lowest to the highest are divided
  std::size_t bytes_;
  void* memory_;
  Suspect* suspects_ = nullptr;
  std::uint32_t* firsts_ = nullptr;  // the first suspect that begins in each part
  unsigned shift_ = 4;
  std::size_t page_ = Process::heap().space().platform().page_size();
  bool follows_ = false;
  std::size_t queued_ = 0;  // index of the first one, from 1 on; 0: none
  Address lowest_ = 0;
  Address highest_ = 0;
};

// Tells on standard error that a search is under way, every two seconds. All threads are stopped:
// it must not wait for whoever reads there.
class SignOfLife {
 public:
  explicit SignOfLife(std::size_t count) noexcept : count_{count} {}
  void count_one() noexcept {
    if ((++seen_ & 0xfff) != 0) return;
    const std::uint64_t now = now_ms();
    if (now < next_ms_) return;
    next_ms_ = now + kPauseMs;
    pollfd errors{.fd = 2, .events = POLLOUT, .revents = 0};
    const timespec at_once{};
    const bool may_write = raw_syscall(SYS_ppoll, reinterpret_cast<long>(&errors), 1,
                                       reinterpret_cast<long>(&at_once), 0, 0) == 1 &&
                           (errors.revents & POLLOUT) != 0;
    if (!may_write) return;
    Message{} << "searching for leaks: " << std::uint64_t{seen_} << " of " << std::uint64_t{count_}
              << " blocks were read";
  }

 private:
  static constexpr std::uint64_t kPauseMs = 2'000;
  static std::uint64_t now_ms() noexcept { return Process::heap().space().platform().now_ms(); }

  std::size_t count_;
  std::size_t seen_ = 0;
  std::uint64_t next_ms_ = now_ms() + kPauseMs;
};

// Follows pointers. Some pages in readable mappings fault: guards of the program or of stacks, and
// files that were truncated. So the kernel copies pages that are not known to be present.
class Marker {
 public:
  explicit Marker(Graph& graph) noexcept
      : graph_{graph}, sign_{graph.count()}, reader_{graph.reader_memory(), page_, false} {}

  // Marks from the words in [from, to). `look(address)` classifies a page.
  enum class Page : std::uint8_t { skipped, suspects, own, others };
  template <class Look>
  void mark_roots(Address from, Address to, Look&& look) noexcept {
    const auto take_page = [&](Address at, Address end, bool is_elsewhere) noexcept {
      const Page page = look(at);
      if (page == Page::suspects && !is_elsewhere) graph_.note_page(at);
      const bool is_direct = page == Page::own && !is_elsewhere;
      if (is_direct) mark_words(at, end, Leak::kNone);
      return is_direct || page == Page::skipped || page == Page::suspects;
    };
    if (can_ask_) return mark_pages(from, to, Leak::kNone, Graph::kNone, take_page);
    for (; from < to; from = align_down(from, page_) + page_) {
      const Page page = look(from);
      if (page != Page::own && page != Page::others) continue;
      mark_words(from, std::min(align_down(from, page_) + page_, to), Leak::kNone);
    }
  }
  void mark_root(Address at) noexcept { mark_words(at, at + sizeof(Address), Leak::kNone); }
  void mark_roots(const Address* words, std::size_t count) noexcept {
    graph_.mark(words, count, Leak::kNone, Graph::kNone);
  }
  // Scans all queued suspects, and those reached from them. All roots must have been marked before.
  void mark_reached(Leak becomes, std::size_t but = Graph::kNone) noexcept {
    while (const Suspect* const next = graph_.next()) mark_block(*next, becomes, but);
  }
  void mark_from(const Suspect& suspect, Leak becomes, std::size_t but = Graph::kNone) noexcept {
    mark_block(suspect, becomes, but);
    mark_reached(becomes, but);
  }
  // Separates direct leaks from those reached from them.
  void find_heads() noexcept {
    for (std::size_t i = 0; i < graph_.count(); ++i) {
      const Suspect& suspect = graph_.suspects()[i];
      if (suspect.leak == Leak::kDirect) mark_from(suspect, Leak::kIndirect, i);
    }
  }

 private:
  void mark_block(const Suspect& block, Leak becomes, std::size_t but) noexcept {
    sign_.count_one();
    const Address end = profile::AtRest::end_of(block);
    if (!can_ask_ || block.is_readable) return mark_words(block.start(), end, becomes, but);
    const auto take_page = [](Address, Address, bool) noexcept { return false; };
    mark_pages(block.start(), end, becomes, but, take_page);
  }
  template <class Skip>
  void mark_pages(Address from, Address to, Leak becomes, std::size_t but, Skip&& skip) noexcept {
    reader_.read(from, to, false, skip, [&](const Address* words, std::size_t number) noexcept {
      graph_.mark(words, number, becomes, but);
    });
  }
  void mark_words(Address from, Address to, Leak becomes, std::size_t but = Graph::kNone) noexcept {
    from = align_up(from, sizeof(Address));
    if (from >= to) return;
    const memory_tags::Unchecked unchecked;
    graph_.mark(reinterpret_cast<const volatile Address*>(from), (to - from) / sizeof(Address),
                becomes, but);
  }

  Graph& graph_;
  SignOfLife sign_;
  std::size_t page_ = Process::heap().space().platform().page_size();
  PageReader reader_;
  bool can_ask_ = PageReader::works();
};

// --- roots -----------------------------------------------------------------------------------

// Memory of Allod, in which no program keeps pointers.
bool is_bookkeeping(Address at, const Graph& graph) noexcept {
  return graph.holds(at) || Process::heap().space().metadata().holds(at) || OwnData{}.holds(at);
}

// Whether a read would fault.
bool is_guarded(Address at) noexcept {
  if (Process::heap().is_guarded(reinterpret_cast<const void*>(at))) return true;
  if constexpr (Policy::kBlockStates) {
    return hardened::is_closed(reinterpret_cast<const void*>(at));
  }
  return false;
}

// Memory of sampled blocks, which is scanned only when reached. Blocks that are not samples are
// always roots.
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

void mark_from_mapping(const DataMapping& mapping, const StoppedThreads& stopped,
                       const EndedThreads& ended, const OwnFrames& own, const Graph& graph,
                       Marker& marker) noexcept {
  const space::PageMap& map = Process::heap().space().map();
  const Address to = mapping.end;
  // The unused part of a stack holds stale pointers. A stack within a block, or beside the
  // program's data, is not recognised and counts whole.
  const bool is_stack =
      mapping.is_main_stack || (mapping.follows_guard && map.tag_of(to - 1) == space::kForeignTag);
  const Address begin = is_stack ? stopped.used_from(mapping.begin, to, own.end()) : mapping.begin;
  const auto look = [&](Address at) noexcept {
    using Page = Marker::Page;
    if (is_bookkeeping(at, graph)) return Page::skipped;
    if (is_of_suspects(at, graph)) return Page::suspects;
    if (is_guarded(at)) return Page::skipped;
    return map.tag_of(at) == space::kForeignTag ? Page::others : Page::own;
  };
  const auto mark = [&](Address from, Address end) noexcept {
    own.read_around(from, end, [&](Address part, Address part_end) noexcept {
      marker.mark_roots(part, part_end, look);
    });
  };
  Address from = begin;
  while (const EndedThreads::Stack* const stack = ended.next(from, to)) {
    if (stack->begin > from) mark(from, stack->begin);
    marker.mark_root(stack->table);
    from = stack->end;
  }
  if (from < to) mark(from, to);
}

int mark_from_roots(const StoppedThreads& stopped, const OwnFrames& own, const Graph& graph,
                    Marker& marker) noexcept {
  static MappingLines lines;
  const EndedThreads ended;
  return for_each_data_mapping(lines, [&](const DataMapping& mapping) noexcept {
    mark_from_mapping(mapping, stopped, ended, own, graph, marker);
  });
}

// The caller has saved all its registers on the stack. Results go into frames below this one.
[[gnu::noinline]] long search() noexcept {
  const OwnFrames own{address_of(__builtin_frame_address(0))};
  profile::AtRest at_rest;
  Graph graph{at_rest.count()};
  if (!graph.is_there()) return -1;
  at_rest.list(graph.suspects());
  graph.sort();
  {
    Marker marker{graph};
    const StoppedThreads stopped{StoppedThreads::Round::only};
    if (stopped.error() != 0) return -1;
    if (mark_from_roots(stopped, own, graph, marker) != 0) return -1;
    std::size_t arguments = 0;
    const Address* const first = stopped.arguments_of_sleepers(&arguments);
    marker.mark_roots(first, arguments);
    graph.follow_roots();
    marker.mark_reached(Leak::kNone);
    for (std::size_t i = 0; i < graph.count(); ++i) {
      const Suspect& suspect = graph.suspects()[i];
      if (suspect.leak == Leak::kDirect && !suspect.is_new) {
        // Blocks older than begin() do not count as leaks, nor do blocks reached from them.
        graph.suspects()[i].leak = Leak::kNone;
        marker.mark_from(suspect, Leak::kNone);
      }
    }
    marker.find_heads();
  }
  at_rest.note(graph.suspects(), graph.count());
  long leaking = 0;
  for (std::size_t i = 0; i < graph.count(); ++i) {
    if (graph.suspects()[i].leak != Leak::kNone) ++leaking;
  }
  return leaking;
}

long find() noexcept {
  __builtin_unwind_init();
  const long leaking = search();
  // Prevents a tail call, which would drop the saved registers.
  asm volatile("" : : : "memory");
  return leaking;
}

void tell(long leaking) noexcept {
  if (leaking < 0) {
    Message{} << "warning: no search for leaks: out of memory, or the system refused to stop the "
                 "threads";
    return;
  }
  if (settings().leaks_file != nullptr) {
    const OutputFile file{settings().leaks_file, ""};
    const long error = file.write([](Text& out) noexcept { profile::write_leaks(out); });
    if (error == 0) return;
    file.warn("leaks", error, leaking == 0 ? "; there are none" : "; they follow here");
  }
  if (leaking == 0) return;
  Message message;
  message << "error: " << std::int64_t{leaking} << " blocks leak";
  profile::show_leaks(message);
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

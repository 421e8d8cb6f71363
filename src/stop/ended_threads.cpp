#include "stop/ended_threads.hpp"

#include <algorithm>

#include "allod/os/linux/linux.hpp"

namespace allod {

constinit EndedThreads::Stack EndedThreads::stacks_[kMost] = {};

#if defined(ALLOD_KNOWS_DESCRIPTORS) && defined(__GLIBC__)

namespace {

[[nodiscard]] bool copy_words(Address from, Address* to, std::size_t count) noexcept {
  return os::Linux::peek(to, from, count * sizeof *to) == 0;
}

// glibc's thread descriptor, at the thread pointer. Words 0 and 2 point to itself, and word 1 to
// the thread's table (DTV). Later words hold a list link, the thread id, and the stack: start of
// the mapping, its size, and the guard's size.
struct Descriptor {
  static constexpr std::size_t kWords = 320;
  static constexpr std::size_t kFirst = 16;  // earlier words are the same in all versions

  explicit Descriptor(Address at) noexcept : address{at} {
    constexpr std::size_t kPage = 4096;
    // The descriptor ends on this page or the next.
    const std::size_t words = std::min(kWords, (kPage - at % kPage) / sizeof(Address));
    const bool is_there = at % sizeof(Address) == 0 && copy_words(at, word, words);
    if (is_there && words < kWords) {
      static_cast<void>(copy_words(at + words * sizeof(Address), word + words, kWords - words));
    }
    is_one = is_there && word[0] == at && word[2] == at;
  }
  [[nodiscard]] std::int32_t thread(std::size_t place) const noexcept {
    return static_cast<std::int32_t>(word[place]);
  }
  [[nodiscard]] bool find_stack(EndedThreads::Stack* stack) const noexcept {
    constexpr Address kLeastPage = 4096;
    for (std::size_t i = kFirst; i + 2 < kWords; ++i) {
      const Address begin = word[i];
      const Address end = begin + word[i + 1];
      const bool is_whole = begin % kLeastPage == 0 && end % kLeastPage == 0;
      const bool holds_this = begin != 0 && begin < address && end > address;
      if (!is_whole || !holds_this || end - address > sizeof word || word[i + 2] > word[i + 1]) {
        continue;
      }
      *stack = {begin, end, address + sizeof(Address)};
      return true;
    }
    return false;
  }

  Address address;
  bool is_one;
  Address word[kWords] = {};
};

// A link of a circular list, whose head belongs to no thread.
struct Link {
  explicit Link(Address at) noexcept {
    Address words[2] = {};
    Address back = 0;
    if (at % sizeof at != 0 || !copy_words(at, words, 2)) return;
    if (!copy_words(words[0] + sizeof at, &back, 1) || back != at) return;
    next = words[0];
  }
  Address next = 0;  // 0: not a link
};

constexpr std::size_t kMostLinks = 1 << 16;

// Finds the index of the thread id in descriptors, from the calling thread's: the link precedes the
// id. 0 if the layout is unknown.
std::size_t find_place_of_id() noexcept {
  const Descriptor own{address_of(os::Linux::self())};
  const long self = raw_syscall(SYS_gettid);
  if (!own.is_one) return 0;
  for (std::size_t place = Descriptor::kFirst; place < Descriptor::kWords; ++place) {
    const bool has_link = Link{own.address + (place - 2) * sizeof(Address)}.next != 0;
    if (own.thread(place) == self && has_link) return place;
  }
  return 0;
}

// The head of the calling thread's list.
Address find_own_head(std::size_t link_offset) noexcept {
  const Address own = address_of(os::Linux::self()) + link_offset;
  Address at = Link{own}.next;
  for (std::size_t i = 0; i < kMostLinks && at != 0 && at != own; ++i) {
    if (!Descriptor{at - link_offset}.is_one) return at;
    at = Link{at}.next;
  }
  return 0;
}

// Visits the descriptors of threads whose stacks glibc caches. Three list heads lie in a row:
// threads on glibc's stacks, threads on the program's stacks, cached stacks.
template <class Visit>
void for_each_kept(Visit&& visit) noexcept {
  const std::size_t place = find_place_of_id();
  if (place == 0) return;
  const std::size_t link_offset = (place - 2) * sizeof(Address);
  const Address own_head = find_own_head(link_offset);
  if (own_head == 0) return;
  const bool is_first = raw_syscall(SYS_gettid) == raw_syscall(SYS_getpid);
  const std::size_t heads = is_first ? 1 : 2;  // of two words each
  const Address head = own_head + heads * 2 * sizeof(Address);
  Address at = Link{head}.next;
  for (std::size_t i = 0; i < kMostLinks && at != 0 && at != head; ++i, at = Link{at}.next) {
    const Descriptor thread{at - link_offset};
    // The kernel has cleared the id, or pthread_join() has negated it.
    if (!thread.is_one || thread.thread(place) > 0) return;
    visit(thread);
  }
}

}  // namespace

EndedThreads::EndedThreads() noexcept {
  for_each_kept([&](const Descriptor& thread) noexcept {
    if (count_ < kMost && thread.find_stack(&stacks_[count_])) ++count_;
  });
  std::sort(stacks_, stacks_ + count_,
            [](const Stack& a, const Stack& b) { return a.begin < b.begin; });
}

#else

EndedThreads::EndedThreads() noexcept = default;

#endif

const EndedThreads::Stack* EndedThreads::next(Address from, Address to) const noexcept {
  const Stack* const found =
      std::lower_bound(stacks_, stacks_ + count_, from,
                       [](const Stack& stack, Address at) { return stack.end <= at; });
  return found != stacks_ + count_ && found->begin < to ? found : nullptr;
}

}  // namespace allod

#include "sweep.hpp"

#include <pthread.h>
#include <sys/uio.h>

#include <algorithm>

#include "hardened.hpp"
#include "mappings.hpp"
#include "stop_threads.hpp"

namespace allod::sweep {

namespace {

// Addresses of blocks that are held. What is appended while a sweep is under way is not part of it.
constexpr std::size_t kMost = std::size_t{1} << 22;
constexpr std::size_t kListBytes = kMost * sizeof(Address);
// Found to be pointed to; no address has this bit.
constexpr Address kPointedTo = Address{1} << 63;

// A sweep reads all of the program's memory: it is worth that when a share of it may come back.
constexpr std::size_t kLeastBytes = std::size_t{4} << 20;
constexpr std::size_t kLeastBlocks = std::size_t{1} << 14;
constexpr std::size_t kShare = 4;

// Guards what follows, but for the part of the list that is being swept.
constinit Process::Heap::Lock lock{LockRank::records};
constinit Address* list = nullptr;
constinit std::size_t count = 0;
constinit std::size_t bytes_held = 0;   // since the last sweep
constinit std::size_t blocks_held = 0;  // the same
constinit std::size_t bytes_wanted = kLeastBytes;
constinit std::size_t blocks_wanted = kLeastBlocks;
constinit bool is_sweeping = false;

os::Linux& platform() noexcept { return Process::heap().space().platform(); }

// --- one sweep -----------------------------------------------------------------------------------

class Marks {
 public:
  Marks(Address* blocks, std::size_t number) noexcept : blocks_{blocks}, count_{number} {}

  void look_at(const Address* words, std::size_t number) noexcept {
    read_ += number * sizeof *words;
    const Address lowest = blocks_[0] & ~kPointedTo;
    for (std::size_t i = 0; i < number; ++i) {
      const Address word = __atomic_load_n(&words[i], __ATOMIC_RELAXED);
      if (word >= lowest && word < Address{1} << kAddressBits) look_at(word);
    }
  }
  [[nodiscard]] std::size_t bytes_read() const noexcept { return read_; }

 private:
  // Most words are numbers, or point to blocks in use.
  void look_at(Address word) noexcept {
    const heap::Bounds block = hardened::bounds_of(reinterpret_cast<const void*>(word));
    if (block.start == nullptr || !block.was_freed()) return;
    const Address start = address_of(block.start);
    const auto before = [](Address a, Address b) { return (a & ~kPointedTo) < b; };
    Address* const at = std::lower_bound(blocks_, blocks_ + count_, start, before);
    if (at != blocks_ + count_ && (*at & ~kPointedTo) == start) *at |= kPointedTo;
  }

  Address* blocks_;
  std::size_t count_;
  std::size_t read_ = 0;
};

// Reads pages that are there: what the program never touched holds no pointers, and what is
// guarded must not be read.
class PageReader {
 public:
  PageReader() noexcept
      : file_{raw_syscall(SYS_openat, AT_FDCWD, reinterpret_cast<long>("/proc/self/pagemap"),
                          O_RDONLY | O_CLOEXEC)},
        page_{platform().page_size()} {}
  ~PageReader() {
    if (file_ >= 0) raw_syscall(SYS_close, file_);
  }
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;

  template <class Skip>
  void read(Address begin, Address end, Marks& marks, Skip&& skip) noexcept {
    static std::uint64_t states[512];
    for (begin = align_up(begin, sizeof(Address)); begin < end;) {
      const Address first = align_down(begin, page_);
      const std::size_t pages = std::min((end - first + page_ - 1) / page_, std::size(states));
      const long got = raw_syscall(SYS_pread64, file_, reinterpret_cast<long>(states),
                                   static_cast<long>(pages * sizeof states[0]),
                                   static_cast<long>(first / page_ * sizeof states[0]));
      const std::size_t known = got < 0 ? 0 : static_cast<std::size_t>(got) / sizeof states[0];
      for (std::size_t i = 0; i < pages; ++i) {
        const Address next = std::min(first + (i + 1) * page_, end);
        // Unknown ones may be there.
        const std::uint64_t state = i < known ? states[i] : kSwapped;
        if ((state & (kPresent | kSwapped)) != 0 && !skip(begin))
          read_page(begin, next, state, marks);
        begin = next;
      }
    }
  }

 private:
  static constexpr std::uint64_t kPresent = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kSwapped = std::uint64_t{1} << 62;

  void read_page(Address begin, Address end, std::uint64_t state, Marks& marks) noexcept {
    if ((state & kPresent) != 0) {
      return marks.look_at(reinterpret_cast<const Address*>(begin),
                           (end - begin) / sizeof(Address));
    }
    // A guard looks the same: the system reads it, or does not.
    static Address copy[4096 / sizeof(Address)];
    for (; begin < end; begin += sizeof copy) {
      const std::size_t bytes = std::min<std::size_t>(end - begin, sizeof copy);
      const iovec to{copy, bytes};
      const iovec from{reinterpret_cast<void*>(begin), bytes};
      const long got =
          raw_syscall(SYS_process_vm_readv, raw_syscall(SYS_getpid), reinterpret_cast<long>(&to), 1,
                      reinterpret_cast<long>(&from), 1, 0);
      if (got > 0) marks.look_at(copy, static_cast<std::size_t>(got) / sizeof(Address));
    }
  }

  long file_;
  std::size_t page_;
};

// What the thread itself has on its stack from here on, its registers among it, counts; what
// earlier calls have left below does not.
[[gnu::noinline]] bool mark(Marks& marks) noexcept {
  const Address own_stack = address_of(__builtin_frame_address(0));
  const StoppedThreads stopped;
  PageReader reader;
  const OwnData own;
  const auto is_bookkeeping = [&](Address at) noexcept {
    return at - address_of(list) < kListBytes || own.holds(at) ||
           Process::heap().space().metadata().holds(at);
  };
  return for_each_data_mapping([&](Address begin, Address to) noexcept {
    // Stacks in blocks of the heap are looked at as a whole, as all of the heap is.
    const bool is_ours = Process::heap().space().map().tag_of(to - 1) != space::kForeignTag;
    if (own_stack >= begin && own_stack < to && !is_ours) begin = own_stack;
    reader.read(begin, to, marks, is_bookkeeping);
  });
}

// With the lock held. False when it is not worth a sweep, or one is under way.
bool begin_sweep(std::size_t* number) noexcept {
  if (is_sweeping || (bytes_held < bytes_wanted && blocks_held < blocks_wanted)) return false;
  is_sweeping = true;
  *number = count;
  for (std::size_t i = 0; i < count; ++i) list[i] &= ~kPointedTo;
  std::sort(list, list + count);
  bytes_held = 0;
  blocks_held = 0;
  return true;
}

// With the lock held. Those to be let go of are copied, up to so many of them; the others stay.
std::size_t take_free(std::size_t* at, std::size_t* number, Address* out,
                      std::size_t most) noexcept {
  std::size_t taken = 0;
  while (*at < *number && taken < most) {
    if ((list[*at] & kPointedTo) != 0) {
      ++*at;
      continue;
    }
    out[taken++] = list[*at];
    list[*at] = list[--*number];
    list[*number] = list[--count];
  }
  return taken;
}

[[gnu::noinline]] void sweep(std::size_t number, void (*let_go)(void*)) noexcept {
  __builtin_unwind_init();
  Marks marks{list, number};
  const bool done = mark(marks);
  // Not on the stack, where the next sweep would find what is left of it.
  static Address batch[256];
  for (std::size_t at = 0;;) {
    std::size_t taken = 0;
    {
      LockGuard guard{lock};
      if (done) taken = take_free(&at, &number, batch, std::size(batch));
      if (taken == 0) {
        bytes_wanted = std::max(kLeastBytes, marks.bytes_read() / kShare);
        blocks_wanted = std::max(kLeastBlocks, marks.bytes_read() / kShare / 64);
        is_sweeping = false;
        return;
      }
    }
    for (std::size_t i = 0; i < taken; ++i) let_go(reinterpret_cast<void*>(batch[i]));
  }
}

void lock_for_fork() noexcept { lock.lock_for_fork(); }
void unlock_in_parent() noexcept { lock.unlock_in_parent(); }
// Whoever was sweeping is not there any more.
void reset_in_child() noexcept {
  is_sweeping = false;
  StoppedThreads::reset_in_child();
  lock.reset_in_child();
}

}  // namespace

bool start() noexcept {
  list = static_cast<Address*>(platform().map(kListBytes));
  if (list == nullptr) return false;
  platform().name(list, kListBytes, "allod: held");
  pthread_atfork(&lock_for_fork, &unlock_in_parent, &reset_in_child);
  return true;
}

bool hold(void* block, std::size_t bytes, void (*let_go)(void*)) noexcept {
  std::size_t number = 0;
  {
    LockGuard guard{lock};
    if (list == nullptr || count == kMost) return false;
    list[count++] = address_of(block);
    bytes_held += bytes;
    ++blocks_held;
    if (!begin_sweep(&number)) return true;
  }
  sweep(number, let_go);
  return true;
}

}  // namespace allod::sweep

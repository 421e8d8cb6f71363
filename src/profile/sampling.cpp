// The profile's sampler.
#include <string.h>

#include "allod/os/linux/guest.hpp"
#include "hardened/hardened.hpp"
#include "profile/book.hpp"
#include "profile/file.hpp"
#include "profile/functions.hpp"
#include "profile/probe.hpp"
#include "profile/profile.hpp"
#include "python/frames.hpp"

namespace allod {

namespace profile {

namespace {

// Blocks that a signal handler frees while it interrupts the profile, linked through their first
// words. Nobody else owns them.
constinit std::atomic<void*> late_frees{nullptr};

// The kernel's id of the calling thread, without a system call for each sample. A child of vfork
// shares the variable, so a thread that may have one keeps none.
[[gnu::tls_model("initial-exec")]] thread_local constinit std::uint32_t own_thread = 0;
std::uint32_t thread_id() noexcept {
  if (own_thread != 0) return own_thread;
  const std::uint32_t thread = engine().space().platform().thread_id();
  if (os::LinuxGuest::host() == 0) own_thread = thread;
  return thread;
}

// Of a call stack, innermost first.
struct Frames {
  const std::uintptr_t* begin;
  std::uint32_t depth;
};
// A block that became a sample.
struct Chosen {
  void* block;
  std::size_t size;
  std::size_t bytes;
  std::size_t interval;
};

// The block that left this thread's magazine of the class last: it is in the bottom cell of the
// empty magazine still. 0 if there is none.
Address neighbour_of(std::size_t bytes) noexcept {
  const auto& front = Process::current();
  if (!front.has_magazines() || bytes > Process::Sizes::kMaxSize) return 0;
  const ClassIndex c = Process::Sizes::of(bytes);
  const heap::Magazine& magazine = front.magazines[c];
  if (magazine.capacity() == 0) return 0;
  const Address block = address_of(*magazine.bottom);
  const space::Tag tag = engine().space().map().tag_of(block);
  return space::is_slab(tag) && space::class_of(tag) == c ? block : 0;
}

// A sample with this call stack. Returns whether the stack was met for the first time.
bool note_at(Frames frames, const Chosen& it) noexcept {
  const Address neighbour = neighbour_of(it.bytes);
  const std::uint32_t thread = thread_id();
  const std::uint64_t now = now_ms();
  std::uint64_t peak = 0;
  std::uint64_t stands_for = 0;
  bool is_new = false;
  {
    LockGuard lock{book.lock};
    Sample* const sample =
        new_sample(remember(frames.begin, frames.depth, &is_new), it.block, it.interval);
    if (sample == nullptr) {
      ++book.lost_samples;
      return false;
    }
    sample->set_neighbour(neighbour);
    sample->set_sizes(it.size, it.bytes);
    sample->birth_ms = now & 0xffffffffff;
    sample->thread = thread & 0xffffff;
    if (count_in(*sample)) peak = book.peak.bytes / 256;
    stands_for = told(weight_of(*sample)).bytes;
  }
  ALLOD_PROBE("sample_allocated", address_of(it.block), it.size, stands_for, frames.depth);
  write_due_files(peak);
  return is_new;
}

// The trace is large for the stacks of some threads, which other programs need not give.
[[gnu::noinline]] void note_with_functions(const Chosen& it, const Stack& stack) noexcept {
  Trace trace;
  add_functions(stack, &trace);
  static_cast<void>(note_at({trace.frames, trace.depth}, it));
}

}  // namespace

void forget_thread_after_fork() noexcept { own_thread = 0; }

}  // namespace profile

void* Profile::allocate(std::size_t size, std::size_t alignment, std::size_t bytes,
                        bool* zero) noexcept {
  using namespace profile;
  if (busy) return nullptr;
  auto* const heap = static_cast<Process::Heap::HeapDomain*>(home_.load(std::memory_order_acquire));
  if (heap == nullptr) return nullptr;
  void* block = nullptr;
  heaps::HeapRequest request{.size = size, .alignment = alignment};
  {
    Busy guard;
    block = engine().allocate_in(Process::own_domain(), *heap, request);
  }
  if (block == nullptr) return nullptr;
  if (zero != nullptr) *zero = request.zero;
  note(block, size, bytes);
  return block;
}

[[gnu::noinline]] void Profile::note(void* block, std::size_t size, std::size_t bytes) noexcept {
  using namespace profile;
  const Chosen chosen{block, size, bytes, interval()};
  if (busy || chosen.interval == 0) return;
  Busy guard;
  Stack stack;
  capture_stack(stack);
  leave_out_own(stack);
  if (python::is_known()) return note_with_functions(chosen, stack);
  if (note_at({stack.frames, stack.depth}, chosen)) look_for_functions(stack);
}

bool Profile::is_busy() noexcept { return profile::busy; }

bool Profile::forget(void* block) noexcept {
  using namespace profile;
  if (busy) {
    if constexpr (Policy::kBlockStates) {
      if (!hardened::lend(block)) return false;  // and the block is lost
    }
    void* next = late_frees.load(std::memory_order_relaxed);
    do {
      memcpy(block, &next, sizeof next);
    } while (!late_frees.compare_exchange_weak(next, block));
    return false;
  }
  {
    Busy guard;
    const std::uint64_t now = now_ms();
    LockGuard lock{book.lock};
    forget_locked(block, now);
  }
  if (__builtin_expect(late_frees.load(std::memory_order_relaxed) != nullptr, 0)) {
    for (void *late = late_frees.exchange(nullptr), *next = nullptr; late != nullptr; late = next) {
      memcpy(&next, late, sizeof next);
      memset(late, 0, sizeof next);
      Process::release(late);
    }
  }
  return true;
}

void Profile::give_back(space::Tag tag, void* block) noexcept {
  using namespace profile;
  Busy guard;
  engine().release_to_heap(Process::own_domain(), tag, block);
}

// Not within malloc, which may run while another thread forks.
bool Profile::prepare() noexcept {
  using namespace profile;
  Process::ensure_started();
  if (home_.load(std::memory_order_acquire) != nullptr) return true;
  auto* const heap = engine().create_heap(nullptr);
  if (heap == nullptr) return false;
  std::uint32_t none = ~0U;
  if (owner_.compare_exchange_strong(none, heap->id())) {
    book.since_ms = now_ms();
    home_.store(heap, std::memory_order_release);
  } else {
    engine().delete_heap(*heap);
  }
  return true;
}

void Profile::start_with_process(std::size_t interval) noexcept {
  period_.fetch_add(1, std::memory_order_relaxed);
  used_.store(true, std::memory_order_relaxed);
  interval_.store(interval == 0 ? profile::kUsualInterval : interval, std::memory_order_release);
}

bool Profile::start(std::size_t interval) noexcept {
  if (!prepare()) return false;
  start_with_process(interval);
  Process::switch_counting(true);
  return true;
}

void Profile::stop() noexcept {
  interval_.store(0, std::memory_order_relaxed);
  Process::switch_counting(Samples::is_on());
}

}  // namespace allod

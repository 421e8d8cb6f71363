#include "stop/signal_stacks.hpp"

#include <errno.h>
#include <sys/syscall.h>

#include "stop/stop_turn.hpp"

namespace allod {

namespace {

// Stored negated, so that a leak search does not take it for a pointer. It searches our data if
// Allod is linked into the program.
class HiddenAddress {
 public:
  [[nodiscard]] Address load() const noexcept { return -negative_.load(); }
  void store(Address at) noexcept { negative_.store(-at); }

 private:
  std::atomic<Address> negative_{0};
};

// Written by its owner thread alone. A thread that ends without disabling its stack keeps the slot,
// so a later thread with the same memory seems to share it. This is harmless for threads on libc's
// stacks, which have room for signal frames.
struct StackSlot {
  std::atomic<void*> owner{nullptr};  // unchanged in the child of a fork
  HiddenAddress begin;
  HiddenAddress end;  // 0: none
};
constexpr std::size_t kMostStacks = 1024;
constinit StackSlot stack_slots[kMostStacks] = {};
constinit std::atomic<bool> has_shared{false};
// Set after `has_shared`, once no stop that assumed unshared stacks is under way.
constinit std::atomic<bool> is_settled{false};

// The calling thread's slot; null if all are taken.
StackSlot* own_stack_slot() noexcept {
  void* const self = os::Linux::self();
  for (StackSlot& slot : stack_slots) {
    if (slot.owner.load() == self) return &slot;
  }
  for (StackSlot& slot : stack_slots) {
    void* nobody = nullptr;
    if (slot.owner.compare_exchange_strong(nobody, self)) return &slot;
  }
  return nullptr;
}

bool overlaps_others(const StackSlot& own) noexcept {
  for (const StackSlot& slot : stack_slots) {
    if (&slot == &own || slot.owner.load() == own.owner.load()) continue;
    if (slot.begin.load() < own.end.load() && own.begin.load() < slot.end.load()) return true;
  }
  return false;
}

// Of two threads that register the same memory at once, the one that stores its end later sees the
// other.
void note_stack(const stack_t& stack) noexcept {
  StackSlot* const own = own_stack_slot();
  if (own != nullptr) {
    own->end.store(0);
    if ((stack.ss_flags & SS_DISABLE) != 0) return own->owner.store(nullptr);
    own->begin.store(address_of(stack.ss_sp));
    own->end.store(address_of(stack.ss_sp) + stack.ss_size);
    if (!overlaps_others(*own)) return;
  }
  has_shared.store(true);
  StopTurn::wait_for_end();
  is_settled.store(true);
}

long set_by_system(const stack_t* stack, stack_t* old) noexcept {
  return raw_syscall(SYS_sigaltstack, reinterpret_cast<long>(stack), reinterpret_cast<long>(old));
}

// Whether the kernel can read `*stack`. rt_sigprocmask with an invalid `how` reads the set first
// and changes nothing. No seccomp filter that allows sigaltstack refuses it.
bool is_readable(const stack_t* stack) noexcept {
  constexpr long kNothing = -1;
  const Address begin = address_of(stack);
  for (const Address word : {begin, begin + sizeof *stack - 8}) {
    if (raw_syscall(SYS_rt_sigprocmask, kNothing, static_cast<long>(word), 0, 8) == -EFAULT) {
      return false;
    }
  }
  return true;
}

}  // namespace

// Registers a stack before it takes effect.
long SignalStacks::set(const stack_t* stack, stack_t* old) noexcept {
  if (stack == nullptr || is_settled.load()) return set_by_system(stack, old);
  if (!is_readable(stack)) return -EFAULT;
  const bool begins = (stack->ss_flags & SS_DISABLE) == 0;
  if (begins) note_stack(*stack);
  const long result = set_by_system(stack, old);
  if (begins && result == 0) return result;
  stack_t now{};
  if (set_by_system(nullptr, &now) == 0) note_stack(now);
  return result;
}

bool SignalStacks::is_on_one() noexcept {
  stack_t now{};
  return set_by_system(nullptr, &now) == 0 && (now.ss_flags & SS_ONSTACK) != 0;
}

// The frame of each signal on this stack names the alternate stack. The highest frame is of the
// signal that switched to it.
Address SignalStacks::interrupted() noexcept {
  stack_t now{};
  if (set_by_system(nullptr, &now) != 0 || (now.ss_flags & SS_ONSTACK) == 0) return 0;
  const Address begin = address_of(now.ss_sp);
  const Address here = address_of(__builtin_frame_address(0));
  const Address end = begin + now.ss_size;
  for (Address at = align_down(end, alignof(ucontext_t)) - sizeof(ucontext_t); at > here;
       at -= alignof(ucontext_t)) {
    const auto& context = *reinterpret_cast<const ucontext_t*>(at);
    if (context.uc_stack.ss_sp != now.ss_sp || context.uc_stack.ss_size != now.ss_size) continue;
    const Address stack = used_stack(context);
    return stack - begin < now.ss_size ? 0 : stack;
  }
  return 0;
}

bool SignalStacks::are_shared() noexcept { return has_shared.load(); }

}  // namespace allod

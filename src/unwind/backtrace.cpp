#include "unwind/backtrace.hpp"

#include <string.h>
#include <unwind.h>

#include <atomic>
#include <string_view>

#include "allod/base/auxiliary.hpp"
#include "image/loaded_place.hpp"
#include "image/own_image.hpp"
#include "unwind/unwinder.hpp"

namespace allod {

namespace {

struct Capture {
  Stack& stack;
  std::uint32_t most;
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto& [stack, most] = *static_cast<Capture*>(argument);
  const std::uintptr_t frame = _Unwind_GetIP(context);
  if (frame == 0 || stack.depth == most) return _URC_END_OF_STACK;
  stack.frames[stack.depth++] = frame;
  return _URC_NO_REASON;
}

_Unwind_Reason_Code take_interrupted_frame(_Unwind_Context* context, void* argument) {
  Stack& stack = static_cast<Capture*>(argument)->stack;
  int is_exact = 0;
  _Unwind_GetIPInfo(context, &is_exact);
  // Earlier frames are the signal handler's.
  if (stack.depth == 0 && is_exact == 0) return _URC_NO_REASON;
  stack.begins_at_fault = true;
  return take_frame(context, argument);
}

// Fallback for tables that our unwinder does not understand, and for other processors.
void capture_by_libgcc(Stack& stack, unwind::From from, std::uint32_t most) noexcept {
  stack.depth = 0;
  Capture capture{stack, most};
  _Unwind_Backtrace(from == unwind::From::here ? &take_frame : &take_interrupted_frame, &capture);
}

}  // namespace

[[gnu::noinline]] void capture_stack(Stack& stack, std::uint32_t most) noexcept {
  stack.begins_at_fault = false;
  constexpr auto kFrom = unwind::From::here;
  const auto outcome =
      unwind::walk(unwind::registers_here(), kFrom, stack.frames, most, &stack.depth);
  if (outcome == unwind::Outcome::unfinished) capture_by_libgcc(stack, kFrom, most);
}

[[gnu::noinline]] void capture_interrupted_stack(Stack& stack) noexcept {
  constexpr auto kFrom = unwind::From::interruption;
  const auto outcome =
      unwind::walk(unwind::registers_here(), kFrom, stack.frames, Stack::kDepth, &stack.depth);
  stack.begins_at_fault = stack.depth > 0;
  if (outcome == unwind::Outcome::unfinished) {
    stack.begins_at_fault = false;
    capture_by_libgcc(stack, kFrom, Stack::kDepth);
  }
}

namespace {

// The size of this library's code, from its ELF header on. 0 if Allod is linked into the program.
std::size_t own_code_bytes() noexcept {
  constexpr std::size_t kUnknown = ~std::size_t{0};
  static constinit std::atomic<std::size_t> known{kUnknown};
  std::size_t bytes = known.load(std::memory_order_relaxed);
  if (__builtin_expect(bytes == kUnknown, 0)) {
    const Image image = own_image();
    bytes = Auxiliary::value(AT_PHDR) - image.begin < 4096 ? 0 : image.code_end - image.begin;
    known.store(bytes, std::memory_order_relaxed);
  }
  return bytes;
}

// The number of frames at the start of the stack that lie in this library.
std::uint32_t own_frames(const Stack& stack) noexcept {
  const Address begin = address_of(&__ehdr_start);
  const std::size_t code = own_code_bytes();
  std::uint32_t count = 0;
  while (count < stack.depth && stack.frames[count] - begin < code) ++count;
  return count;
}

// The public name of an entry point with several names. The loader may answer with any of them.
std::string_view usual_name(std::string_view name) noexcept {
  constexpr std::string_view kInternal = "__libc_";
  if (name.starts_with(kInternal)) name.remove_prefix(kInternal.size());
  return name == "cfree" ? "free" : name;
}

// A return address may already belong to the next function, so look up the byte before.
std::uintptr_t inside(const Stack& stack, std::uint32_t frame) noexcept {
  return frame == 0 && stack.begins_at_fault ? stack.frames[0] : stack.frames[frame] - 1;
}

}  // namespace

void write_stack(Text& out, const Stack& stack, FindClosed find_closed,
                 std::uint64_t number) noexcept {
  // Show the entry point that the program called, but none of our frames below it.
  const std::uint32_t own = own_frames(stack);
  const std::uint32_t first = own > 0 ? own - 1 : 0;
  for (std::uint32_t i = first; i < stack.depth; ++i) {
    const std::uintptr_t frame = stack.frames[i];
    out << "\nallod:     #" << i - first << " " << Hex{frame};
    LoadedPlace place;
    const Address at = inside(stack, i);
    const bool is_closed = find_closed != nullptr && find_closed(at, number, &place);
    if (!is_closed && !find_loaded_place(at, &place)) continue;
    if (place.line != 0) {
      out << " " << Shown{place.name} << " (" << Shown{place.file} << ":" << place.line << ")";
      continue;
    }
    if (place.name != nullptr) {
      out << " " << Shown{i < own ? usual_name(place.name) : place.name} << "+"
          << Hex{frame - place.name_begin};
    }
    if (place.file != nullptr) {
      out << " (" << Shown{place.file} << "+" << Hex{frame - place.file_base}
          << (is_closed ? ", closed)" : ")");
    }
  }
}

void leave_out_own(Stack& stack) noexcept {
  const std::uint32_t own = own_frames(stack);
  stack.depth -= own;
  memmove(stack.frames, stack.frames + own, stack.depth * sizeof stack.frames[0]);
}

void write_stack_as_json(Text& out, const Stack& stack) noexcept {
  out << "[";
  for (std::uint32_t i = 0; i < stack.depth; ++i) {
    out << (i == 0 ? "\"" : ",\"") << Hex{stack.frames[i]} << "\"";
  }
  out << "]";
}

namespace {

void write_build_id_as_json(Text& out, const LoadedPlace& place) noexcept {
  if (place.build_id == nullptr) return;
  constexpr std::string_view kDigits = "0123456789abcdef";
  out << ",\"build_id\":\"";
  for (std::size_t i = 0; i < place.build_id_bytes; ++i) {
    const unsigned char byte = place.build_id[i];
    const char digits[] = {kDigits[byte >> 4], kDigits[byte & 15]};
    out << std::string_view{digits, sizeof digits};
  }
  out << "\"";
}

}  // namespace

void write_files_as_json(Text& out, std::initializer_list<const Stack*> stacks) noexcept {
  constexpr std::size_t kMost = 3 * Stack::kDepth;  // for three stacks
  Address told[kMost];
  std::size_t count = 0;
  const auto was_told = [&](Address base) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      if (told[i] == base) return true;
    }
    return false;
  };
  out << "[";
  for (const Stack* const stack : stacks) {
    for (std::uint32_t i = 0; stack != nullptr && i < stack->depth && count < kMost; ++i) {
      LoadedPlace place;
      if (!find_loaded_place(inside(*stack, i), &place) || place.file == nullptr) continue;
      if (was_told(place.file_base)) continue;
      out << (count == 0 ? "{\"path\":" : ",{\"path\":") << Quoted{place.file} << ",\"base\":\""
          << Hex{place.file_base} << "\"";
      if (place.file_end != 0) out << ",\"end\":\"" << Hex{place.file_end} << "\"";
      write_build_id_as_json(out, place);
      out << "}";
      told[count++] = place.file_base;
    }
  }
  out << "]";
}

void write_event(Text& out, std::string_view what, std::uint32_t thread,
                 const Stack& stack) noexcept {
  out << "\nallod:   " << what << " by thread " << thread << ":";
  write_stack(out, stack);
}

namespace {

constexpr Stack kUnknown{};
[[nodiscard]] const Stack& known(const Stack* stack) noexcept {
  return stack != nullptr ? *stack : kUnknown;
}

}  // namespace

void write_history(Text& out, const History& history) noexcept {
  write_event(out, "allocated", history.allocating_thread, known(history.allocated_at));
  if (history.in_use) return;
  write_event(out, "freed", history.freeing_thread, known(history.freed_at));
}

void write_history_as_json(Text& out, const History& history) noexcept {
  out << ",\"allocating_thread\":" << history.allocating_thread << ",\"allocated_at\":";
  write_stack_as_json(out, known(history.allocated_at));
  if (history.in_use) return;
  out << ",\"freeing_thread\":" << history.freeing_thread << ",\"freed_at\":";
  write_stack_as_json(out, known(history.freed_at));
}

}  // namespace allod

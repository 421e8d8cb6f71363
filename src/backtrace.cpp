#include "backtrace.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <string_view>

namespace allod {

namespace {

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  Stack& stack = *static_cast<Stack*>(argument);
  const std::uintptr_t frame = _Unwind_GetIP(context);
  if (frame == 0 || stack.depth == Stack::kDepth) return _URC_END_OF_STACK;
  stack.frames[stack.depth++] = frame;
  return _URC_NO_REASON;
}

}  // namespace

[[gnu::noinline]] void capture_stack(Stack& stack) noexcept {
  stack.depth = 0;
  _Unwind_Backtrace(&take_frame, &stack);
}

namespace {

// How many frames at the start of the stack are inside of this library.
std::uint32_t own_frames(const Stack& stack) noexcept {
  Dl_info own;
  if (dladdr(reinterpret_cast<void*>(&capture_stack), &own) == 0) return 0;
  std::uint32_t count = 0;
  Dl_info info;
  while (count < stack.depth && dladdr(reinterpret_cast<void*>(stack.frames[count]), &info) != 0 &&
         info.dli_fbase == own.dli_fbase) {
    ++count;
  }
  return count;
}

// Of a function of this library that has several names, the one that programs use: the loader
// answers with any of them.
std::string_view usual_name(std::string_view name) noexcept {
  constexpr std::string_view kInternal = "__libc_";
  if (name.starts_with(kInternal)) name.remove_prefix(kInternal.size());
  return name == "cfree" ? "free" : name;
}

}  // namespace

void write_stack(Text& out, const Stack& stack) noexcept {
  // The entry point that was called is worth a line; what it calls is not.
  const std::uint32_t own = own_frames(stack);
  const std::uint32_t first = own > 0 ? own - 1 : 0;
  for (std::uint32_t i = first; i < stack.depth; ++i) {
    const std::uintptr_t frame = stack.frames[i];
    out << "\nallod:     #" << i - first << " " << Hex{frame};
    Dl_info info;
    // A return address may already belong to the next function.
    if (dladdr(reinterpret_cast<void*>(frame - 1), &info) == 0) continue;
    if (info.dli_sname != nullptr) {
      out << " " << (i < own ? usual_name(info.dli_sname) : info.dli_sname) << "+"
          << Hex{frame - reinterpret_cast<std::uintptr_t>(info.dli_saddr)};
    }
    if (info.dli_fname != nullptr) {
      out << " (" << info.dli_fname << "+"
          << Hex{frame - reinterpret_cast<std::uintptr_t>(info.dli_fbase)} << ")";
    }
  }
}

}  // namespace allod

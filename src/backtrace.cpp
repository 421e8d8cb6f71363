#include "backtrace.hpp"

#include <dlfcn.h>
#include <unwind.h>

namespace allod {

namespace {

struct Walk {
  Stack& stack;
  unsigned skip;
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const std::uintptr_t frame = _Unwind_GetIP(context);
  if (frame == 0 || walk.stack.depth == Stack::kDepth) return _URC_END_OF_STACK;
  if (walk.skip > 0) {
    --walk.skip;
  } else {
    walk.stack.frames[walk.stack.depth++] = frame;
  }
  return _URC_NO_REASON;
}

}  // namespace

[[gnu::noinline]] void capture_stack(Stack& stack, unsigned skip) noexcept {
  stack.depth = 0;
  Walk walk{stack, skip + 1};
  _Unwind_Backtrace(&take_frame, &walk);
}

void write_stack(Text& out, const Stack& stack) noexcept {
  for (std::uint32_t i = 0; i < stack.depth; ++i) {
    const std::uintptr_t frame = stack.frames[i];
    out << "\nallod:     #" << i << " " << Hex{frame};
    Dl_info info;
    // A return address may already belong to the next function.
    if (dladdr(reinterpret_cast<void*>(frame - 1), &info) == 0) continue;
    if (info.dli_sname != nullptr) {
      out << " " << info.dli_sname << "+"
          << Hex{frame - reinterpret_cast<std::uintptr_t>(info.dli_saddr)};
    }
    if (info.dli_fname != nullptr) {
      out << " (" << info.dli_fname << "+"
          << Hex{frame - reinterpret_cast<std::uintptr_t>(info.dli_fbase)} << ")";
    }
  }
}

}  // namespace allod

#include "report/report.hpp"

#include <stdlib.h>
#include <sys/syscall.h>

#include "guards/guards.hpp"
#include "instance/heaps.hpp"
#include "report/tracker.hpp"
#include "settings/options.hpp"
#include "unwind/backtrace.hpp"

namespace allod {

namespace {

// Names in JSON reports.
std::string_view word_for(heap::MisuseKind kind) noexcept {
  constexpr std::string_view kWords[] = {"double_free",
                                         "invalid_free",
                                         "foreign_free",
                                         "size_mismatch",
                                         "wrong_heap",
                                         "overflow",
                                         "write_after_free",
                                         "wrong_function",
                                         "stray_write",
                                         "copy_past_the_end",
                                         "copy_after_free",
                                         "underflow",
                                         "access_after_free",
                                         "access_past_the_end",
                                         "access_before_the_start",
                                         "access_to_nothing",
                                         "wrong_tag"};
  return kWords[static_cast<unsigned>(kind)];
}

std::string_view allocating_function(slab::Origin origin) noexcept {
  constexpr std::string_view kNames[] = {"?", "malloc", "operator new", "operator new[]"};
  return kNames[static_cast<unsigned>(origin)];
}
std::string_view freeing_function(slab::Origin origin) noexcept {
  constexpr std::string_view kNames[] = {"?", "free or realloc", "operator delete",
                                         "operator delete[]"};
  return kNames[static_cast<unsigned>(origin)];
}

// `record`: the heap with this id, if known. Looking up a name takes locks, which an interrupted
// thread may hold. After a fault or in a signal handler, the name comes from the record, which
// never moves.
void write_owner(Text& out, const heap::Misuse& misuse, std::uint32_t id,
                 const heaps::Domain* record) noexcept {
  char name[heaps::kNameBytes] = {};
  bool is_heap;
  if (heap::is_fault(misuse.kind) || Process::is_interrupted()) {
    is_heap = id >= space::kFirstHeapOwner && id <= space::kMaxOwner;
    if (record != nullptr) memcpy(name, record->name, sizeof name);
  } else {
    is_heap = heaps::copy_name(id, name);
  }
  if (!is_heap) {
    out << "domain " << id / 2;  // see Front::count
  } else if (name[0] == '\0') {
    out << "heap " << id;
  } else {
    out << "heap " << Quoted{name};
  }
}

bool is_guarded(const heap::Misuse& misuse) noexcept { return Guards::holds(misuse.block); }

// Finds the block's history; false if unknown. Only the debug library learns the requested size
// from it.
bool recall(heap::Misuse* misuse, History* history) noexcept {
  if (is_guarded(*misuse)) {
    *history = Guards::history_of(*misuse);
    return true;
  }
  if constexpr (kMayKeepHistory) {
    const void* const block = misuse->block != nullptr ? misuse->block : misuse->address;
    std::size_t requested;
    if (!find_history(block, history, &requested)) return false;
    if constexpr (Policy::kTracked) {
      using slab::BlockState;
      misuse->requested = requested;
      misuse->state =
          history->in_use ? BlockState::live(slab::Origin::any, 0) : BlockState::freed(0);
    }
    return true;
  }
  return false;
}

void write_block(Text& out, const heap::Misuse& misuse) noexcept {
  if (is_guarded(misuse)) return Guards::write_place(out, misuse);
  if (misuse.block == nullptr) {
    if (misuse.kind == heap::MisuseKind::foreign_free) {
      out << "\nallod:   the address is not Allod's";
    } else {
      out << "\nallod:   the address is in no block now";
    }
    return;
  }
  const std::size_t offset = address_of(misuse.address) - address_of(misuse.block);
  out << "\nallod:   ";
  if (offset != 0) out << std::uint64_t{offset} << " bytes into ";
  const bool has_class = misuse.block_bytes != 0 && misuse.block_bytes <= Policy::Sizes::kMaxSize;
  out << "block " << Hex{address_of(misuse.block)} << (has_class ? " of size class " : " of ")
      << std::uint64_t{misuse.block_bytes};
  if (!has_class) out << " bytes";
  if (misuse.owner == space::kOrphanOwner) {
    out << ", whose thread has ended";
  } else if (misuse.owner != 0) {
    out << ", owned by ";
    write_owner(out, misuse, misuse.owner, Process::heap().heap_of(misuse.block));
  }
}

void write_state(Text& out, const heap::Misuse& misuse) noexcept {
  if (misuse.requested != heap::kUnknownBytes) {
    out << "\nallod:   " << (misuse.state.is_live() ? "in use" : "free") << ", requested with "
        << std::uint64_t{misuse.requested} << " bytes";
  }
  if (misuse.first_changed != heap::kUnknownBytes) {
    out << "\nallod:   the first changed byte is byte " << std::uint64_t{misuse.first_changed};
  }
  if (misuse.kind == heap::MisuseKind::wrong_function) {
    out << "\nallod:   allocated by " << allocating_function(misuse.state.origin()) << ", freed by "
        << freeing_function(misuse.claimed_origin);
  }
}

void write_neighbour(Text& out, const heap::Neighbour& neighbour, std::string_view side) noexcept {
  if (neighbour.block == nullptr) return;
  out << "\nallod:   in use " << side << " it: block " << Hex{address_of(neighbour.block)}
      << ", requested with " << std::uint64_t{neighbour.requested} << " bytes";
  if constexpr (kMayKeepHistory) {
    History history;
    std::size_t requested;
    if (find_history(neighbour.block, &history, &requested)) write_history(out, history);
  }
}

// Names the measure, so that users can disable it for a harmless mismatch.
void write_measure(Text& out, heap::MisuseKind kind) noexcept {
  using heap::MisuseKind;
  if (!Policy::kBlockStates) return;
  if (kind == MisuseKind::size_mismatch || kind == MisuseKind::wrong_function) {
    out << "\nallod:   found by the measure origin of ALLOD_HARDENED";
  }
}

void write_copy(Text& out, const heap::Misuse& misuse) noexcept {
  out << "\nallod:   " << misuse.function << (misuse.is_write ? " would write " : " would read ")
      << std::uint64_t{misuse.claimed_bytes} << " bytes there";
}

// Without a block's history, the release library shows no stacks.
bool tells_stack(const heap::Misuse& misuse) noexcept {
  return Policy::kTracked || Policy::kBlockStates || is_guarded(misuse) ||
         heap::is_fault(misuse.kind) || heap::is_copy(misuse.kind);
}
// The stack of the faulty call or access.
void capture_culprit(Stack& stack, heap::MisuseKind kind) noexcept {
  if (heap::is_fault(kind)) return capture_interrupted_stack(stack);
  capture_stack(stack);
  // The release library's entry points have no frames of their own.
  if constexpr (!Policy::kTracked && !Policy::kBlockStates) leave_out_own(stack);
}

// One line, starting with {"allod":"error".
void write_json(Text& out, const heap::Misuse& misuse, const History* history) noexcept {
  const auto address = [&](std::string_view name, const void* value) {
    out << ",\"" << name << "\":\"" << Hex{address_of(value)} << "\"";
  };
  const auto number = [&](std::string_view name, std::uint64_t value) {
    out << ",\"" << name << "\":" << value;
  };
  out << "{\"allod\":\"error\",\"kind\":\"" << word_for(misuse.kind) << "\"";
  address("address", misuse.address);
  if (misuse.block != nullptr) {
    address("block", misuse.block);
    number("block_bytes", misuse.block_bytes);
    const bool is_heaps =
        misuse.owner >= space::kFirstHeapOwner && misuse.owner <= space::kMaxOwner;
    if (is_heaps) {
      number("heap", misuse.owner);
    } else if (misuse.owner != 0 && misuse.owner != space::kOrphanOwner) {
      number("domain", misuse.owner / 2);  // see Front::count
    }
  }
  if (misuse.requested != heap::kUnknownBytes) {
    number("requested", misuse.requested);
    out << ",\"in_use\":" << (misuse.state.is_live() ? "true" : "false");
  }
  if (misuse.first_changed != heap::kUnknownBytes) number("first_changed", misuse.first_changed);
  if (misuse.kind == heap::MisuseKind::size_mismatch) number("claimed", misuse.claimed_bytes);
  const auto neighbour = [&](std::string_view name, const heap::Neighbour& block) {
    if (block.block == nullptr) return;
    out << ",\"" << name << "\":{\"block\":\"" << Hex{address_of(block.block)}
        << "\",\"requested\":" << std::uint64_t{block.requested} << "}";
  };
  neighbour("before", misuse.before);
  neighbour("behind", misuse.behind);
  if (heap::is_copy(misuse.kind)) {
    out << ",\"function\":" << Quoted{misuse.function} << ",\"access\":\""
        << (misuse.is_write ? "write" : "read") << "\"";
    number("bytes", misuse.claimed_bytes);
  }
  number("process", static_cast<std::uint64_t>(raw_syscall(SYS_getpid)));
  number("thread", Process::heap().space().platform().thread_id());
  if (is_guarded(misuse)) out << ",\"guarded\":true";
  if (history != nullptr) write_history_as_json(out, *history);
  Stack stack;
  const bool has_stack = tells_stack(misuse);
  if (has_stack) {
    capture_culprit(stack, misuse.kind);
    out << ",\"stack\":";
    write_stack_as_json(out, stack);
  }
  if (has_stack || history != nullptr) {
    out << ",\"files\":";
    write_files_as_json(out, {history != nullptr ? history->allocated_at : nullptr,
                              history != nullptr ? history->freed_at : nullptr, &stack});
  }
  out << "}\n";
}

void write_culprit(Text& out, const heap::Misuse& misuse) noexcept {
  Stack stack;
  capture_culprit(stack, misuse.kind);
  write_event(out, heap::is_fault(misuse.kind) ? "this access" : "this call",
              Process::heap().space().platform().thread_id(), stack);
}

// The report follows as text, even if text reports are off.
void warn_of_lost_report(int descriptor, long error) noexcept {
  Message{} << "warning: cannot write a report to file descriptor " << descriptor << ": "
            << SystemError{error} << "; it follows here";
}

}  // namespace

void ReportToUser::report(const heap::Misuse& found) noexcept {
  heap::Misuse misuse = found;
  History life;
  const History* const history = recall(&misuse, &life) ? &life : nullptr;
  long error = 0;
  if (const int descriptor = report_descriptor(); descriptor >= 0) {
    {
      DescriptorText out{descriptor};
      write_json(out, misuse, history);
      error = out.finish();
    }
    if (error != 0) warn_of_lost_report(descriptor, error);
  }
  if (settings().show_errors || error != 0) {
    Message message;
    message << "error: " << heap::start_of_report(misuse.kind) << Hex{address_of(misuse.address)};
    write_block(message, misuse);
    if (misuse.kind == heap::MisuseKind::size_mismatch) {
      message << "\nallod:   the caller says " << std::uint64_t{misuse.claimed_bytes} << " bytes";
    }
    if (misuse.kind == heap::MisuseKind::wrong_heap) {
      message << "\nallod:   the caller names ";
      write_owner(message, misuse, misuse.claimed_owner, nullptr);
    }
    if (heap::is_copy(misuse.kind)) write_copy(message, misuse);
    write_state(message, misuse);
    if (misuse.kind == heap::MisuseKind::stray_write && misuse.block != nullptr) {
      message << "\nallod:   never in use";
    }
    write_neighbour(message, misuse.before, "before");
    write_neighbour(message, misuse.behind, "behind");
    write_measure(message, misuse.kind);
    if (history != nullptr) write_history(message, *history);
    if (tells_stack(misuse)) write_culprit(message, misuse);
  }
  if (heap::is_fault(misuse.kind)) return;
  // Programs that mix allocators free foreign blocks without harm.
  const bool is_deadly = Policy::kBlockStates || misuse.kind != heap::MisuseKind::foreign_free;
  if (settings().abort_on_error && is_deadly) abort();
}

void report_failed_check(const char* what) noexcept {
  {
    Message{} << "error: internal check failed: " << what
              << "\nallod:   either the program has written outside its blocks, or Allod has a "
                 "defect";
  }
  abort();
}

}  // namespace allod

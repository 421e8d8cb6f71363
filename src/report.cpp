#include "report.hpp"

#include <stdlib.h>

#include "heaps.hpp"
#include "options.hpp"
#include "tracker.hpp"

namespace allod {

namespace {

std::string_view name_of(heap::MisuseKind kind) noexcept {
  switch (kind) {
    case heap::MisuseKind::double_free:
      return "double free of ";
    case heap::MisuseKind::invalid_free:
      return "invalid free of ";
    case heap::MisuseKind::foreign_free:
      return "free of foreign address ";
    case heap::MisuseKind::size_mismatch:
      return "free with the wrong size of ";
    case heap::MisuseKind::wrong_heap:
      return "free to the wrong heap of ";
  }
  return "misuse of ";
}

void write_owner(Text& out, std::uint32_t id) noexcept {
  char name[heaps::kNameBytes];
  if (!heaps::copy_name(id, name)) {
    out << "domain " << id / 2;  // see Front::count
  } else if (name[0] == '\0') {
    out << "heap " << id;
  } else {
    out << "heap \"" << name << "\"";
  }
}

void write_block(Text& out, const heap::Misuse& misuse) noexcept {
  if (misuse.block == nullptr) {
    if (misuse.kind == heap::MisuseKind::foreign_free) {
      out << "\nallod:   no memory of Allod is there";
    } else {
      out << "\nallod:   no block is there now";
    }
    return;
  }
  const std::size_t offset = address_of(misuse.address) - address_of(misuse.block);
  out << "\nallod:   ";
  if (offset != 0) out << std::uint64_t{offset} << " bytes into ";
  const bool has_class = misuse.block_bytes <= Policy::Sizes::kMaxSize;
  out << "block " << Hex{address_of(misuse.block)} << (has_class ? " of size class " : " of ")
      << std::uint64_t{misuse.block_bytes};
  if (!has_class) out << " bytes";
  if (misuse.owner == space::kOrphanOwner) {
    out << ", whose thread has ended";
  } else if (misuse.owner != 0) {
    out << ", owned by ";
    write_owner(out, misuse.owner);
  }
}

}  // namespace

void ReportToUser::report(const heap::Misuse& misuse) noexcept {
  if (settings().show_errors) {
    Message message;
    message << "error: " << name_of(misuse.kind) << Hex{address_of(misuse.address)};
    write_block(message, misuse);
    if (misuse.kind == heap::MisuseKind::size_mismatch) {
      message << "\nallod:   the caller says " << std::uint64_t{misuse.claimed_bytes} << " bytes";
    }
    if (misuse.kind == heap::MisuseKind::wrong_heap) {
      message << "\nallod:   the caller names ";
      write_owner(message, misuse.claimed_owner);
    }
    if constexpr (Policy::kTracked)
      write_history(message, misuse.block != nullptr ? misuse.block : misuse.address);
  }
  if (settings().abort_on_error && misuse.kind != heap::MisuseKind::foreign_free) abort();
}

void report_failed_check(const char* what) noexcept {
  {
    Message{} << "error: internal check failed: " << what
              << "\nallod:   either the program has written where it must not, or this is a "
                 "defect of Allod";
  }
  abort();
}

}  // namespace allod

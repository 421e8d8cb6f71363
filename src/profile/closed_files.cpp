#include "profile/closed_files.hpp"

#include <string.h>

#include "profile/profile.hpp"
#include "scan/mappings.hpp"

namespace allod::profile {

namespace {

// Never freed.
struct ClosedFile {
  ClosedFile* next;  // closed before it
  Address begin;
  Address end;
  std::atomic<std::uint64_t> last_stack;
  std::size_t length;
  char line[1];  // of /proc/self/maps, zero-terminated

  [[nodiscard]] std::string_view text() const noexcept { return {line, length}; }
  [[nodiscard]] bool overlaps(Address from, Address to) const noexcept {
    return begin < to && from < end;
  }
  // The path starts at the first slash; the fields before it are numbers.
  [[nodiscard]] const char* path() const noexcept { return strchr(line, '/'); }
  [[nodiscard]] Address offset() const noexcept {
    std::size_t at = text().find(' ', text().find(' ') + 1) + 1;
    return parse_hex(text(), &at);
  }
};

constinit std::atomic<ClosedFile*> newest{nullptr};

constexpr std::size_t kRoomBytes = std::size_t{1} << 20;
constexpr std::size_t kListBytes = (kRoomBytes - sizeof(MappingLines)) / 2;

// Lists the executable file mappings, one per line.
std::size_t list_code(MappingLines& lines, char* to) noexcept {
  std::size_t length = 0;
  const int error = for_each_mapping_line(lines, [&](std::string_view text) noexcept {
    const bool is_code = MappingLine{text}.rights[2] == 'x' && text.find('/') != text.npos;
    if (!is_code || text.size() + 1 > kListBytes - length) return;
    memcpy(to + length, text.data(), text.size());
    length += text.size();
    to[length++] = '\n';
  });
  return error == 0 ? length : 0;
}

void note(std::string_view text) noexcept {
  const MappingLine line{text};
  ClosedFile* before = newest.load(std::memory_order_acquire);
  while (before != nullptr && !before->overlaps(line.begin, line.end)) before = before->next;
  // A file that is loaded and closed repeatedly has the same stacks each time.
  const bool is_known = before != nullptr && before->text() == text;
  const std::uint64_t last = end_stacks_in(line.begin, line.end, is_known);
  if (is_known) return before->last_stack.store(last, std::memory_order_relaxed);
  if (last == 0) return;
  void* const memory = Process::heap().space().allocate_metadata(sizeof(ClosedFile) + text.size());
  if (memory == nullptr) return;
  auto* const file =
      new (memory) ClosedFile{newest.load(), line.begin, line.end, last, text.size(), {}};
  memcpy(file->line, text.data(), text.size());
  while (!newest.compare_exchange_weak(file->next, file, std::memory_order_release)) continue;
}

}  // namespace

Closing::Closing() noexcept {
  if (!Profile::may_know()) return;
  text_ = static_cast<char*>(Process::heap().space().platform().map(kRoomBytes));
  if (text_ == nullptr) return;
  length_ = list_code(*reinterpret_cast<MappingLines*>(text_ + 2 * kListBytes), text_);
}

Closing::~Closing() {
  if (text_ == nullptr) return;
  char* const now = text_ + kListBytes;
  const std::string_view left{
      now, list_code(*reinterpret_cast<MappingLines*>(text_ + 2 * kListBytes), now)};
  for (std::string_view rest{text_, length_}; !left.empty() && !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    if (left.find(line) != left.npos) continue;
    line.remove_suffix(1);
    note(line);
  }
  Process::heap().space().platform().unmap(text_, kRoomBytes);
}

void write_closed_files(Text& out) noexcept {
  const ClosedFile* file = newest.load(std::memory_order_acquire);
  for (; file != nullptr; file = file->next) {
    out << file->text() << " (closed, stacks up to " << file->last_stack.load() << ")\n";
  }
}

bool find_closed_place(Address frame, std::uint64_t stack, LoadedPlace* place) noexcept {
  const ClosedFile* found = nullptr;
  std::uint64_t least = ~std::uint64_t{0};
  const ClosedFile* file = newest.load(std::memory_order_acquire);
  for (; file != nullptr; file = file->next) {
    const std::uint64_t last = file->last_stack.load(std::memory_order_relaxed);
    if (frame < file->begin || frame >= file->end || stack > last || last > least) continue;
    found = file;
    least = last;
  }
  if (found == nullptr) return false;
  *place = {.file = found->path(), .file_base = found->begin - found->offset()};
  return true;
}

}  // namespace allod::profile

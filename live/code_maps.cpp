#include "code_maps.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "memory.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

constexpr std::size_t kMostPieces = std::size_t{1} << 18;
constexpr off_t kMostBytes = off_t{1} << 28;
constexpr std::uint64_t kReadAgainMs = 1'000;
constexpr std::uint64_t kSlackSeconds = 2;  // clocks of files tick coarsely

// A piece of code. Its name stays in the file.
struct CodePiece {
  std::uintptr_t begin;
  std::uint32_t bytes;
  std::uint32_t name_at;   // position in the file
  std::uint32_t lines_at;  // of the record with its lines; 0: none
};

class CodeFile {
 public:
  enum class Kind : unsigned char { map, dump };

  // Reads what was added. Starts over if it is another file by now.
  void refresh(const char* path, Kind kind) noexcept {
    const int file = open_own(path);
    if (file < 0) return;
    if (file_ >= 0) close(file_);
    file_ = file;
    kind_ = kind;
    if (kind == Kind::map) {
      read_map();
    } else {
      read_dump();
    }
  }
  [[nodiscard]] std::size_t size() const noexcept { return pieces_.size(); }
  [[nodiscard]] bool find(std::uintptr_t address, CodeName* name) const noexcept;

 private:
  [[nodiscard]] int open_own(const char* path) noexcept;
  [[nodiscard]] bool read_at(std::uint64_t at, void* to, std::size_t bytes) const noexcept {
    return pread(file_, to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
  }
  void read_map() noexcept;
  void take_line(const char* line, std::uint64_t at) noexcept;
  void read_dump() noexcept;
  void take_record(std::uint32_t kind, std::uint64_t at) noexcept;
  void find_line(const CodePiece& piece, std::uintptr_t address, CodeName* name) const noexcept;
  void add(const CodePiece& piece) noexcept {
    if (pieces_.size() < kMostPieces) static_cast<void>(pieces_.push(piece));
  }

  int file_ = -1;
  Kind kind_ = Kind::map;
  dev_t device_ = 0;
  ino_t number_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t read_ = 0;      // of these bytes, whole lines or records
  std::uint64_t lines_at_ = 0;  // the last record of lines, and whose they are
  std::uint64_t lines_of_ = 0;
  Table<CodePiece>
      pieces_;  // in the order of the file: of two at an address, the later one is there
};

struct CodeMaps {
  CodeFile map;
  CodeFile dump;
  std::uint64_t refreshed_ms = 0;
  std::uint64_t began = 0;
};

constinit Lasting<CodeMaps> lasting_maps;
CodeMaps& code_maps() noexcept { return lasting_maps.value; }

int CodeFile::open_own(const char* path) noexcept {
  const int file = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat found{};
  if (file < 0) return file;
  const bool is_ours =
      fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid() &&
      static_cast<std::uint64_t>(found.st_mtime) + kSlackSeconds >= code_maps().began;
  if (!is_ours) {
    close(file);
    return -1;
  }
  const auto size = static_cast<std::uint64_t>(std::min(found.st_size, kMostBytes));
  if (found.st_dev != device_ || found.st_ino != number_ || size < size_) {
    pieces_.clear();
    read_ = 0;
    lines_at_ = lines_of_ = 0;
  }
  device_ = found.st_dev;
  number_ = found.st_ino;
  size_ = size;
  return file;
}

// --- /tmp/perf-PID.map: lines of beginning, bytes and name, the numbers in hexadecimal
// ------------

void CodeFile::read_map() noexcept {
  constexpr std::size_t kRoom = std::size_t{64} << 10;
  auto* const room = static_cast<char*>(allocate(kRoom));
  if (room == nullptr) return;
  while (read_ < size_) {
    const std::size_t wanted = std::min<std::uint64_t>(kRoom - 1, size_ - read_);
    const ssize_t got = pread(file_, room, wanted, static_cast<off_t>(read_));
    if (got <= 0) break;
    room[got] = '\0';
    char* line = room;
    while (char* const end = strchr(line, '\n')) {
      *end = '\0';
      take_line(line, read_ + static_cast<std::uint64_t>(line - room));
      line = end + 1;
    }
    // A last line without its end is read again; a very long one is left out.
    if (line == room && static_cast<std::size_t>(got) < kRoom - 1) break;
    read_ += static_cast<std::uint64_t>(line == room ? got : line - room);
  }
  release(room);
}

void CodeFile::take_line(const char* line, std::uint64_t at) noexcept {
  char* end = nullptr;
  const std::uint64_t begin = strtoull(line, &end, 16);
  if (end == line || *end != ' ') return;
  const char* const second = end + 1;
  const std::uint64_t bytes = strtoull(second, &end, 16);
  if (end == second || *end != ' ' || bytes == 0 || bytes > UINT32_MAX) return;
  add({begin, static_cast<std::uint32_t>(bytes),
       static_cast<std::uint32_t>(at + static_cast<std::uint64_t>(end + 1 - line)), 0});
}

// --- jitdump (tools/perf/Documentation/jitdump-specification.txt in Linux)
// ------------------------

struct Record {
  std::uint32_t kind;
  std::uint32_t bytes;  // with this head
  std::uint64_t time;
};
enum RecordKind : std::uint32_t { kLoad = 0, kMove = 1, kLines = 2 };
constexpr std::uint32_t kDumpMagic = 0x4a695444;

void CodeFile::read_dump() noexcept {
  if (read_ == 0) {
    std::uint32_t head[3];  // magic, version, bytes of the head
    if (!read_at(0, head, sizeof head) || head[0] != kDumpMagic || head[2] < sizeof head) return;
    read_ = head[2];
  }
  Record record{};
  while (read_ + sizeof record <= size_ && read_at(read_, &record, sizeof record)) {
    if (record.bytes < sizeof record || read_ + record.bytes > size_) break;
    take_record(record.kind, read_);
    read_ += record.bytes;
  }
}

void CodeFile::take_record(std::uint32_t kind, std::uint64_t at) noexcept {
  const std::uint64_t behind = at + sizeof(Record);
  if (kind == kLoad) {
    constexpr unsigned kAddress = 2;
    std::uint64_t load[5];  // process and thread, place, address, bytes, number
    if (!read_at(behind, load, sizeof load) || load[3] > UINT32_MAX) return;
    const bool has_lines = lines_at_ != 0 && lines_of_ == load[kAddress];
    add({load[kAddress], static_cast<std::uint32_t>(load[3]),
         static_cast<std::uint32_t>(behind + sizeof load),
         has_lines ? static_cast<std::uint32_t>(lines_at_) : 0});
  } else if (kind == kMove) {
    std::uint64_t move[6];  // process and thread, place, old and new address, bytes, number
    if (!read_at(behind, move, sizeof move) || move[4] > UINT32_MAX) return;
    for (std::size_t i = pieces_.size(); i-- > 0;) {
      if (pieces_[i].begin != move[2]) continue;
      CodePiece moved = pieces_[i];
      moved.begin = move[3];
      return add(moved);
    }
  } else if (kind == kLines) {
    lines_at_ = at;
    if (!read_at(behind, &lines_of_, sizeof lines_of_)) lines_at_ = 0;
  }
}

// The last entry at or before the address. One has the address, line, a number, and the file's
// name, which is "\xff" if it is that of the entry before.
void CodeFile::find_line(const CodePiece& piece, std::uintptr_t address,
                         CodeName* name) const noexcept {
  constexpr std::uint64_t kMostEntries = 100'000;
  std::uint64_t head[2];  // address, entries
  std::uint64_t at = piece.lines_at + sizeof(Record);
  if (!read_at(at, head, sizeof head)) return;
  at += sizeof head;
  // Moved code has lines by its first address.
  const std::uint64_t wanted = address - piece.begin + head[0];
  struct {
    std::uint64_t address;
    std::uint32_t line;
    std::uint32_t number;
    char file[280];
  } entry;
  constexpr std::size_t kFixed = 16;
  char* const file = name->text + sizeof name->text - sizeof entry.file;
  for (std::uint64_t i = 0; i < std::min(head[1], kMostEntries); ++i) {
    memset(&entry, 0, sizeof entry);
    const ssize_t got = pread(file_, &entry, sizeof entry - 1, static_cast<off_t>(at));
    if (got <= static_cast<ssize_t>(kFixed) || (i > 0 && entry.address > wanted)) return;
    const std::size_t length = strlen(entry.file);
    if (entry.file[0] != '\xff') memcpy(file, entry.file, length + 1);
    name->file = file;
    name->line = static_cast<int>(entry.line);
    at += kFixed + length + 1;
  }
}

bool CodeFile::find(std::uintptr_t address, CodeName* name) const noexcept {
  constexpr std::size_t kMostName = 300;
  for (std::size_t i = pieces_.size(); i-- > 0;) {
    const CodePiece& piece = pieces_[i];
    if (address - piece.begin >= piece.bytes) continue;
    const ssize_t got = pread(file_, name->text, kMostName, static_cast<off_t>(piece.name_at));
    if (got <= 0) return false;
    name->text[got] = '\0';
    name->text[strcspn(name->text, "\n")] = '\0';
    name->function = name->text;
    name->file = nullptr;
    name->line = 0;
    split_code_name(name);
    if (piece.lines_at != 0) find_line(piece, address, name);
    return true;
  }
  return false;
}

// The path in a line of /proc/self/maps, if the line ends with this name.
bool take_path(const char* line, std::string_view name, char* path, std::size_t room) noexcept {
  const char* const begin = strchr(line, '/');
  if (begin == nullptr) return false;
  const std::string_view text = begin;
  if (!text.ends_with(name) || text.size() >= room) return false;
  memcpy(path, begin, text.size() + 1);
  return true;
}

// The jitdump that the process has mapped to make perf know it. False if there is none.
bool find_dump(char* path, std::size_t room) noexcept {
  constexpr std::size_t kRoom = std::size_t{16} << 10;
  auto* const text = static_cast<char*>(allocate(kRoom));
  const int maps = text == nullptr ? -1 : open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  char name[40];
  snprintf(name, sizeof name, "/jit-%d.dump", getpid());
  bool is_found = false;
  std::size_t held = 0;
  while (maps >= 0 && !is_found) {
    const ssize_t got = read(maps, text + held, kRoom - 1 - held);
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    text[held] = '\0';
    char* line = text;
    for (char* end = nullptr; !is_found && (end = strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      is_found = take_path(line, name, path, room);
    }
    // A line longer than the room is no path of interest.
    held = line == text && held == kRoom - 1 ? 0 : strlen(line);
    memmove(text, line, held);
  }
  if (maps >= 0) close(maps);
  release(text);
  return is_found;
}

}  // namespace

std::size_t refresh_code_maps() noexcept {
  CodeMaps& maps = code_maps();
  const std::uint64_t now = now_ms();
  if (maps.refreshed_ms == 0 || now >= maps.refreshed_ms + kReadAgainMs) {
    maps.refreshed_ms = now;
    if (maps.began == 0) maps.began = process_began();
    char path[512];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    maps.map.refresh(path, CodeFile::Kind::map);
    if (find_dump(path, sizeof path)) maps.dump.refresh(path, CodeFile::Kind::dump);
  }
  return maps.map.size() + maps.dump.size();
}

bool find_code(std::uintptr_t address, CodeName* name) noexcept {
  return code_maps().dump.find(address, name) || code_maps().map.find(address, name);
}

void drop_code_maps() noexcept { new (&lasting_maps.value) CodeMaps; }

void split_code_name(CodeName* name) noexcept {
  char* const text = name->text;
  if (strncmp(text, "py::", 4) == 0) {
    name->function = text + 4;
    char* const colon = strchr(text + 4, ':');
    if (colon == nullptr) return;
    *colon = '\0';
    name->file = colon + 1;
    return;
  }
  // :LINE or :LINE:COLUMN at the end.
  char* end = text + strlen(text);
  char* number = end;
  for (int i = 0; i < 2; ++i) {
    char* at = number;
    while (at > text && at[-1] >= '0' && at[-1] <= '9') --at;
    if (at == number || at == text || at[-1] != ':') break;
    number = at - 1;
  }
  if (number == end) return;
  char* space = nullptr;
  for (const char* const begin : {" /", " file:", " node:", " "}) {
    space = strstr(text, begin);
    if (space != nullptr) break;
  }
  if (space == nullptr || space > number) return;
  name->line = atoi(number + 1);
  *number = *space = '\0';
  name->file = space + 1;
  // What V8 says of the kind of function and of its compiler.
  char* const colon = strchr(text, ':');
  if (colon != nullptr) name->function = colon + 1;
  if (strchr("~^*+", *name->function) != nullptr && *name->function != '\0') ++name->function;
  if (*name->function == '\0') name->function = "(anonymous)";
}

}  // namespace allod::live

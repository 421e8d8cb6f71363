// Loads a Mach-O library for this processor into a process of Linux: both systems call functions
// alike, almost. The structures are those of Apple's <mach-o/loader.h> and <mach-o/nlist.h>.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

class MachO {
 public:
  // Finds what the library imports, by its name without the first underscore. Null: not there.
  using Find = void* (*)(std::string_view name);

  MachO(const char* path, Find find) : find_{find} {
    read(path);
    const auto& header = at<Header>(0);
    require(header.magic == 0xfeedfacf && header.processor == kProcessor, "another processor");
    for_each_command([&](const Command& command, std::size_t offset) { note(command, offset); });
    map_segments();
    rebase();
    bind(info_.bind, info_.bind_size);
    bind(info_.lazy, info_.lazy_size);
    bind(info_.weak, info_.weak_size);
    rename_registers();
    protect_segments();
  }

  // An exported function or variable; null if there is none.
  [[nodiscard]] void* symbol(std::string_view name) const {
    constexpr std::uint8_t kExternal = 1;
    constexpr std::uint8_t kPrivate = 0x10;
    constexpr std::uint8_t kKind = 0x0e;
    constexpr std::uint8_t kInSection = 0x0e;
    for (std::uint32_t i = 0; i < symbols_.count; ++i) {
      const auto& entry = at<Entry>(symbols_.entries + i * sizeof(Entry));
      if ((entry.type & kExternal) == 0 || (entry.type & kPrivate) != 0) continue;
      if ((entry.type & kKind) != kInSection) continue;
      const char* const text = &at<char>(symbols_.names + entry.name);
      if (text[0] == '_' && name == text + 1) return memory_ + entry.value;
    }
    return nullptr;
  }

  struct Pair {
    void* ours;
    void* theirs;
  };
  [[nodiscard]] std::vector<Pair> interposed() const {
    std::vector<Pair> pairs;
    for (const Section& section : sections_) {
      if (std::strncmp(section.name, "__interpose", sizeof section.name) != 0) continue;
      for (std::uint64_t done = 0; done < section.bytes; done += sizeof(Pair)) {
        pairs.push_back(*reinterpret_cast<const Pair*>(memory_ + section.address + done));
      }
    }
    return pairs;
  }
  void run_constructors(int argc, char** argv, char** environment) const {
    constexpr std::uint32_t kPointersToConstructors = 9;
    using Constructor = void (*)(int, char**, char**, char**);
    char* none[] = {nullptr};
    for (const Section& section : sections_) {
      if ((section.flags & 0xff) != kPointersToConstructors) continue;
      for (std::uint64_t done = 0; done < section.bytes; done += sizeof(void*)) {
        const auto run = *reinterpret_cast<const Constructor*>(memory_ + section.address + done);
        run(argc, argv, environment, none);
      }
    }
  }

 private:
#if defined(__aarch64__)
  static constexpr std::uint32_t kProcessor = 0x0100000c;
#else
  static constexpr std::uint32_t kProcessor = 0x01000007;
#endif
  // No system has larger pages.
  static constexpr std::uint64_t kPage = std::uint64_t{64} << 10;

  struct Header {
    std::uint32_t magic, processor, kind_of_it, kind, commands, command_bytes, flags, reserved;
  };
  struct Command {
    std::uint32_t kind, bytes;
  };
  struct Segment {
    std::uint32_t kind, bytes;
    char name[16];
    std::uint64_t address, memory_bytes, offset, file_bytes;
    std::uint32_t most, first, sections, flags;
  };
  struct Section {
    char name[16], segment[16];
    std::uint64_t address, bytes;
    std::uint32_t offset, alignment, relocations, relocation_count, flags, reserved[3];
  };
  struct SymbolTable {
    std::uint32_t kind, bytes, entries, count, names, name_bytes;
  };
  struct Entry {
    std::uint32_t name;
    std::uint8_t type, section;
    std::uint16_t description;
    std::uint64_t value;
  };
  struct Info {
    std::uint32_t kind, bytes, rebase, rebase_size, bind, bind_size, weak, weak_size, lazy,
        lazy_size, exports, export_size;
  };

  static void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "Mach-O: %s\n", what);
    std::_Exit(2);
  }
  template <class T>
  [[nodiscard]] const T& at(std::size_t offset) const {
    return *reinterpret_cast<const T*>(file_.data() + offset);
  }
  void read(const char* path) {
    std::FILE* const file = std::fopen(path, "rb");
    require(file != nullptr, "no such file");
    std::fseek(file, 0, SEEK_END);
    file_.resize(static_cast<std::size_t>(std::ftell(file)));
    std::rewind(file);
    require(std::fread(file_.data(), 1, file_.size(), file) == file_.size(), "cannot be read");
    std::fclose(file);
  }
  template <class Visit>
  void for_each_command(Visit&& visit) const {
    std::size_t offset = sizeof(Header);
    for (std::uint32_t i = 0; i < at<Header>(0).commands; ++i) {
      visit(at<Command>(offset), offset);
      offset += at<Command>(offset).bytes;
    }
  }
  void note(const Command& command, std::size_t offset) {
    constexpr std::uint32_t kSegment = 0x19;
    constexpr std::uint32_t kSymbols = 2;
    constexpr std::uint32_t kInfo = 0x80000022;
    constexpr std::uint32_t kChained = 0x80000034;
    require(command.kind != kChained, "chained fixups are not read");
    if (command.kind == kSymbols) symbols_ = at<SymbolTable>(offset);
    if (command.kind == kInfo) info_ = at<Info>(offset);
    if (command.kind != kSegment) return;
    const auto& segment = at<Segment>(offset);
    segments_.push_back(segment);
    for (std::uint32_t i = 0; i < segment.sections; ++i) {
      sections_.push_back(at<Section>(offset + sizeof(Segment) + i * sizeof(Section)));
    }
  }
  void map_segments() {
    std::uint64_t end = 0;
    for (const Segment& segment : segments_) end = segment.address + segment.memory_bytes;
    require(segments_.front().address == 0, "not position-independent");
    void* const memory =
        mmap(nullptr, end + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "no memory");
    const auto from = reinterpret_cast<std::uint64_t>(memory);
    memory_ = reinterpret_cast<char*>((from + kPage - 1) & ~(kPage - 1));
    for (const Segment& segment : segments_) {
      std::memcpy(memory_ + segment.address, file_.data() + segment.offset, segment.file_bytes);
    }
  }
  // macOS keeps the values of a thread at a register that programs of Linux on arm64 cannot set. So
  // code reads another one: see libsystem.cpp.
  void rename_registers() const {
#if defined(__aarch64__)
    constexpr std::uint32_t kRegister = 0x1f;
    constexpr std::uint32_t kReadsTheirs = 0xd53bd060;  // mrs x0, tpidrro_el0
    constexpr std::uint32_t kReadsOurs = 0xd53bd040;    // mrs x0, tpidr_el0
    for (const Section& section : sections_) {
      if (std::strncmp(section.name, "__text", sizeof section.name) != 0) continue;
      auto* const code = reinterpret_cast<std::uint32_t*>(memory_ + section.address);
      for (std::uint64_t i = 0; i < section.bytes / 4; ++i) {
        if ((code[i] & ~kRegister) == kReadsTheirs) code[i] = kReadsOurs | (code[i] & kRegister);
      }
    }
    __builtin___clear_cache(memory_, memory_ + segments_.back().address);
#endif
  }
  // The bits of a protection are the same on both systems.
  void protect_segments() const {
    for (const Segment& segment : segments_) {
      const std::string_view name{segment.name};
      const int now = name == "__DATA_CONST" ? PROT_READ : static_cast<int>(segment.first);
      require(mprotect(memory_ + segment.address, segment.memory_bytes, now) == 0, "protection");
    }
  }

  // --- programs of opcodes that tell dyld what to write ---------------------------------------

  [[nodiscard]] std::uint64_t number(std::size_t& offset) const {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = at<std::uint8_t>(offset++);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }
  void rebase() {
    std::size_t offset = info_.rebase;
    const std::size_t end = offset + info_.rebase_size;
    char* place = nullptr;
    const auto repeat = [&](std::uint64_t count, std::uint64_t skip) {
      for (; count > 0; --count, place += sizeof(void*) + skip) {
        *reinterpret_cast<std::uint64_t*>(place) += reinterpret_cast<std::uint64_t>(memory_);
      }
    };
    while (offset < end) {
      const auto byte = at<std::uint8_t>(offset++);
      const std::uint8_t immediate = byte & 0xf;
      switch (byte & 0xf0) {
        case 0x00:
          return;
        case 0x10:
          require(immediate == 1, "a kind of pointer");
          break;
        case 0x20:
          place = memory_ + segments_[immediate].address + number(offset);
          break;
        case 0x30:
          place += number(offset);
          break;
        case 0x40:
          place += immediate * sizeof(void*);
          break;
        case 0x50:
          repeat(immediate, 0);
          break;
        case 0x60:
          repeat(number(offset), 0);
          break;
        case 0x70:
          repeat(1, number(offset));
          break;
        case 0x80: {
          const std::uint64_t count = number(offset);
          repeat(count, number(offset));
          break;
        }
        default:
          require(false, "an opcode of rebasing");
      }
    }
  }
  void bind(std::size_t offset, std::size_t bytes) {
    const std::size_t end = offset + bytes;
    char* place = nullptr;
    std::string_view name;
    std::uint64_t addend = 0;
    const auto write = [&](std::uint64_t skip) {
      void* target = symbol(name.substr(1));
      if (target == nullptr) target = find_(name[0] == '_' ? name.substr(1) : name);
      if (target == nullptr) {
        std::fprintf(stderr, "Mach-O: nothing stands in for %s\n", std::string{name}.c_str());
        std::_Exit(2);
      }
      *reinterpret_cast<std::uint64_t*>(place) = reinterpret_cast<std::uint64_t>(target) + addend;
      place += sizeof(void*) + skip;
    };
    while (offset < end) {
      const auto byte = at<std::uint8_t>(offset++);
      const std::uint8_t immediate = byte & 0xf;
      switch (byte & 0xf0) {
        case 0x00:  // ends an entry of lazy ones
        case 0x10:
        case 0x30:
          break;  // which library
        case 0x20:
          static_cast<void>(number(offset));
          break;
        case 0x40:
          name = &at<char>(offset);
          offset += name.size() + 1;
          break;
        case 0x50:
          require(immediate == 1, "a kind of binding");
          break;
        case 0x60:
          addend = number(offset);
          break;
        case 0x70:
          place = memory_ + segments_[immediate].address + number(offset);
          break;
        case 0x80:
          place += number(offset);
          break;
        case 0x90:
          write(0);
          break;
        case 0xa0:
          write(number(offset));
          break;
        case 0xb0:
          write(immediate * sizeof(void*));
          break;
        case 0xc0: {
          const std::uint64_t count = number(offset);
          const std::uint64_t skip = number(offset);
          for (std::uint64_t i = 0; i < count; ++i) write(skip);
          break;
        }
        default:
          require(false, "an opcode of binding");
      }
    }
  }

  Find find_;
  std::string file_;
  std::vector<Segment> segments_;
  std::vector<Section> sections_;
  SymbolTable symbols_{};
  Info info_{};
  char* memory_ = nullptr;
};

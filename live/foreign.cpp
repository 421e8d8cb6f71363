#include "foreign.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string_view>

namespace allod::live {

namespace {

// Allocators that map memory of their own.
struct Pool {
  std::string_view file;  // how the names of programs or libraries begin that have it
  const char* name;
  const char* remedy;
  const char* variable;  // of the environment; with this value, the pool is not used
  std::string_view off;
};
constexpr Pool kPools[] = {
    {"libjvm.so", "the Java heap",
     "-Xmx and -XX:MaxMetaspaceSize limit it; -XX:NativeMemoryTracking=summary tells its parts",
     nullptr, ""},
    {"libcoreclr.so", "the heap of .NET", "DOTNET_GCHeapHardLimit limits it", nullptr, ""},
    {"libpython", "Python's own pools", "PYTHONMALLOC=malloc takes them from Allod", "PYTHONMALLOC",
     "malloc"},
    {"python", "Python's own pools", "PYTHONMALLOC=malloc takes them from Allod", "PYTHONMALLOC",
     "malloc"},
    {"libnode.so", "V8's heap", "--max-old-space-size=MIB limits it", nullptr, ""},
    {"node", "V8's heap", "--max-old-space-size=MIB limits it", nullptr, ""},
    {"libphp", "PHP's own heap", "USE_ZEND_ALLOC=0 takes it from Allod", "USE_ZEND_ALLOC", "0"},
    {"php", "PHP's own heap", "USE_ZEND_ALLOC=0 takes it from Allod", "USE_ZEND_ALLOC", "0"},
    {"beam.smp", "Erlang's own allocators", "+Mea min takes their memory from Allod", nullptr, ""},
};
constexpr int kPoolCount = sizeof kPools / sizeof kPools[0];

bool is_in_use(const Pool& pool) noexcept {
  const char* const value = pool.variable == nullptr ? nullptr : getenv(pool.variable);
  return value == nullptr || !std::string_view{value}.starts_with(pool.off);
}

// substr() can throw.
std::string_view from_place(std::string_view text, std::size_t place) noexcept {
  if (place >= text.size()) return {};
  return {text.data() + place, text.size() - place};
}

// Adds mappings up, one after another.
class ForeignSums {
 public:
  // The first line of a mapping: addresses, rights, offset, device, file number, name.
  void begin(std::string_view line) noexcept {
    char* rest = nullptr;
    const std::uintptr_t from = strtoul(&line[0], &rest, 16);
    const std::uintptr_t to = strtoul(rest + 1, &rest, 16);
    const std::string_view rights{rest + 1, 4};
    constexpr std::size_t kGuard = std::size_t{64} << 10;
    const std::size_t name = line.find_first_of("/[", static_cast<std::size_t>(rest - line.data()));
    const std::string_view path = from_place(line, name);
    if (!path.starts_with('/')) {
      end_file();
    } else if (path != std::string_view{path_, path_length_}) {
      begin_file(path);
    }
    // glibc's stacks of threads follow a guard, and have no name.
    const bool is_stack =
        path.starts_with("[stack") || (path.empty() && guard_end_ == from && rights[1] == 'w');
    is_executable_ |= rights[2] == 'x';
    to_ = path.starts_with('/')                        ? &of_file_
          : is_stack                                   ? &result_.stacks
          : rights[2] == 'x' || path.starts_with("[v") ? &result_.code
                                                       : nullptr;
    guard_end_ = rights.starts_with("---p") && path.empty() && to - from <= kGuard ? to : 0;
  }
  void add(std::uint64_t bytes) noexcept {
    if (to_ != nullptr) *to_ += bytes;
  }
  [[nodiscard]] Foreign end() noexcept {
    end_file();
    if (pool_ < kPoolCount) {
      result_.pool = kPools[pool_].name;
      result_.remedy = kPools[pool_].remedy;
    }
    return result_;
  }

 private:
  void begin_file(std::string_view path) noexcept {
    end_file();
    path_length_ = path.size() < sizeof path_ ? path.size() : 0;
    memcpy(path_, path.data(), path_length_);
  }
  // Those that are not executable anywhere are data.
  void end_file() noexcept {
    (is_executable_ ? result_.code : result_.files) += of_file_;
    const std::string_view path{path_, path_length_};
    const std::string_view name = from_place(path, path.rfind('/') + 1);
    for (int i = 0; is_executable_ && i < pool_; ++i) {
      if (!name.empty() && name.starts_with(kPools[i].file) && is_in_use(kPools[i])) pool_ = i;
    }
    of_file_ = path_length_ = 0;
    is_executable_ = false;
  }

  Foreign result_;
  int pool_ = kPoolCount;  // the first one in the list is the likeliest
  std::uint64_t* to_ = nullptr;
  std::uintptr_t guard_end_ = 0;  // of the mapping before, if it may be one
  // The file that consecutive mappings are of.
  char path_[512] = {};
  std::size_t path_length_ = 0;
  std::uint64_t of_file_ = 0;
  bool is_executable_ = false;
};

}  // namespace

Foreign read_foreign() noexcept {
  ForeignSums sums;
  const int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char buffer[8192];
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = read(file, buffer + held, sizeof buffer - 1 - held);
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    std::size_t start = 0;
    for (std::size_t i = 0; i < held; ++i) {
      if (buffer[i] != '\n') continue;
      buffer[i] = '\0';
      const std::string_view line{buffer + start, i - start};
      start = i + 1;
      // Fields have a name with a capital letter, as no address has one.
      if (line.starts_with("Rss:")) {
        sums.add(strtoull(line.data() + 4, nullptr, 10) * 1024);
      } else if (!line.empty() && (line[0] < 'A' || line[0] > 'Z')) {
        sums.begin(line);
      }
    }
    held -= start;
    memmove(buffer, buffer + start, held);
    if (held == sizeof buffer - 1) held = 0;  // longer than any line
  }
  close(file);
  return sums.end();
}

}  // namespace allod::live

// Sums up a trace, prints it, or prepares it for the replay.
#include "tool.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>

namespace replay {

void print_events(const Trace& trace, std::uint64_t most) {
  constexpr const char* kNames[] = {"free",    "malloc", "calloc", "aligned",
                                    "realloc", "new",    "delete"};
  for (std::uint32_t thread = 0; thread < trace.threads().size(); ++thread) {
    Cursor cursor{trace, thread};
    for (Event event; cursor.next(event);) {
      if (most-- == 0) return;
      const auto since = static_cast<double>(event.ticks - trace.first_ticks());
      std::printf("%u %.0f %s 0x%llx", thread, since * trace.nanoseconds_per_tick(),
                  kNames[static_cast<std::size_t>(event.kind)],
                  static_cast<unsigned long long>(event.address));
      if (event.kind == Kind::realloc) {
        std::printf(" 0x%llx", static_cast<unsigned long long>(event.moved_to));
      }
      if (event.kind != Kind::free && event.kind != Kind::delete_block) {
        std::printf(" %llu", static_cast<unsigned long long>(event.size));
      }
      if (event.kind == Kind::aligned) std::printf(" %llu", 1ULL << event.alignment);
      std::printf("\n");
    }
  }
}

}  // namespace replay

namespace {

constexpr char kUsage[] =
    "usage: trace-tool info TRACE\n"
    "       trace-tool dump TRACE [MOST]\n"
    "       trace-tool prepare TRACE OUTPUT\n";

int run(int argc, char** argv) {
  const char* what = argc > 2 ? argv[1] : "";
  if (std::strcmp(what, "info") == 0 && argc == 3) {
    replay::print_info(replay::Trace{argv[2]});
  } else if (std::strcmp(what, "dump") == 0 && (argc == 3 || argc == 4)) {
    std::uint64_t most = UINT64_MAX;
    if (argc == 4 &&
        std::from_chars(argv[3], argv[3] + std::strlen(argv[3]), most).ec != std::errc{}) {
      throw replay::TraceError("the number of events must be a whole number");
    }
    replay::print_events(replay::Trace{argv[2]}, most);
  } else if (std::strcmp(what, "prepare") == 0 && argc == 4) {
    replay::prepare(replay::Trace{argv[2]}, argv[3]);
  } else {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

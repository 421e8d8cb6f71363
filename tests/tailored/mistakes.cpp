// What a checked heap reports: the case is the first argument.
#include <pthread.h>
#include <sys/prctl.h>

#include <allod.hpp>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

namespace {

struct Strict : allod::Parts {
  using Sizes = allod::FixedClasses<32, 64, 256>;
  using Storage = allod::AnySize<>;
  using Checks = allod::Checked;
};
struct StrictAndShared : Strict {
  using Threads = allod::ThreadCaching<>;
};

struct Guarding : Strict {
  using Checks = allod::Hardened;
};

allod::Tailored<Strict> orders{"orders"};
allod::Tailored<Guarding> guarded{"guarded"};
allod::Tailored<StrictAndShared> trades{"trades"};

// Something else than what was there, which is random behind a block. Through memory, or the
// compiler would leave stores to free memory out.
void store(void* block, std::size_t at) {
  auto& byte = static_cast<volatile unsigned char*>(block)[at];
  byte = static_cast<unsigned char>(~byte);
}
void overflow(std::size_t size) {
  void* const block = guarded.allocate(size);
  store(block, size);
  guarded.deallocate(block);
}
void write_after_free(std::size_t size) {
  void* const block = guarded.allocate(size);
  guarded.deallocate(block);
  store(block, 20);
}

void use_on_second_thread() {
  prctl(PR_SET_NAME, "first");
  static_cast<void>(orders.allocate(32));
  std::thread second{[] {
    pthread_setname_np(pthread_self(), "second");
    static_cast<void>(orders.allocate(32));
  }};
  second.join();
}

void use_after_end() {
  alignas(allod::Tailored<Strict>) static unsigned char place[sizeof(allod::Tailored<Strict>)];
  auto* const heap = new (place) allod::Tailored<Strict>{"short-lived"};
  static_cast<void>(heap->allocate(32));
  heap->~ComposedHeap();
  static_cast<void>(heap->allocate(32));
}

struct Case {
  const char* name;
  void (*run)();
};
const Case kCases[] = {
    {"double free",
     [] {
       void* const block = orders.allocate(32);
       orders.deallocate(block);
       orders.deallocate(block);
     }},
    {"double free of any size",
     [] {
       void* const kept = orders.allocate(1000);
       void* const block = orders.allocate(1000);
       orders.deallocate(block);
       orders.deallocate(block);
       orders.deallocate(kept);
     }},
    {"double free of a run",
     [] {
       void* const block = orders.allocate(100'000);
       orders.deallocate(block);
       orders.deallocate(block);
     }},
    {"interior", [] { orders.deallocate(static_cast<char*>(orders.allocate(64)) + 8); }},
    {"interior of any size",
     [] { orders.deallocate(static_cast<char*>(orders.allocate(1000)) + 64); }},
    {"interior of a huge block",
     [] { orders.deallocate(static_cast<char*>(orders.allocate(5'000'000)) + 64); }},
    {"wrong size", [] { orders.deallocate(orders.allocate(32), 64); }},
    {"wrong heap", [] { trades.deallocate(orders.allocate(32)); }},
    {"foreign",
     [] {
       static int here;
       orders.deallocate(&here);
     }},
    {"double free in quarantine",
     [] {
       void* const block = guarded.allocate(40);
       guarded.deallocate(block);
       guarded.deallocate(block);
     }},
    {"size of what is in quarantine",
     [] {
       void* const block = guarded.allocate(40);
       guarded.deallocate(block);
       static_cast<void>(guarded.usable_size(block));
     }},
    {"overflow", [] { overflow(40); }},
    {"overflow at the end of the class", [] { overflow(56); }},
    {"overflow of any size", [] { overflow(1000); }},
    {"overflow of a run", [] { overflow(100'000); }},
    {"overflow of a huge block", [] { overflow(5'000'000); }},
    {"wrong size by one", [] { guarded.deallocate(guarded.allocate(40), 41); }},
    {"write after free",
     [] {
       write_after_free(40);
       for (int i = 0; i < 800; ++i) guarded.deallocate(guarded.allocate(40));
     }},
    {"write after free of any size",
     [] {
       write_after_free(1000);
       guarded.recycle();
     }},
    {"write after free and the end",
     [] {
       write_after_free(40);
       guarded.reset();
     }},
    {"null", [] { orders.deallocate(nullptr); }},
    {"second thread", use_on_second_thread},
    {"after the end", use_after_end},
    {"right use",
     [] {
       for (std::size_t size = 1; size < 3'000'000; size += size / 3 + 1) {
         orders.deallocate(orders.allocate(size), size);
         trades.deallocate(trades.reallocate(trades.allocate(size), 2 * size));
         void* const block = guarded.allocate_zeroed(1, size);
         std::memset(block, 1, guarded.usable_size(block));
         guarded.deallocate(guarded.reallocate(block, 2 * size), 2 * size);
       }
     }},
};

}  // namespace

int main(int argc, char** argv) {
  for (const Case& one : kCases) {
    if (argc == 2 && std::strcmp(one.name, argv[1]) == 0) {
      one.run();
      std::puts("done");
      return 0;
    }
  }
  std::fprintf(stderr, "no such case\n");
  return 2;
}

// A composed heap as the malloc of a process. Ends with status 0, or where a promise is broken.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <allod.hpp>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct ProcessParts : allod::Parts {
  using Storage = allod::AnySize<>;
  using Threads = allod::ThreadCaching<>;
};
struct OddParts : allod::Parts {
  using Sizes = allod::FixedClasses<48, 3008>;
};
struct SharedOddParts : OddParts {
  using Threads = allod::ThreadCaching<>;
};
using Heap = allod::Tailored<ProcessParts>;
ALLOD_REPLACE_MALLOC(Heap);

namespace {

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::_Exit(1);
}

bool is_aligned(const void* block, std::size_t alignment) {
  return block != nullptr && reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
}

void check_surface() {
  for (std::size_t size = 0; size < 3'000'000; size += size / 4 + 1) {
    auto* block = static_cast<unsigned char*>(std::malloc(size));
    expect(is_aligned(block, 16), "malloc aligns to 16");
    expect(malloc_usable_size(block) >= size, "the usable size is enough");
    std::memset(block, 7, size);
    block = static_cast<unsigned char*>(std::realloc(block, 2 * size + 1));
    for (std::size_t i = 0; i < size; ++i) expect(block[i] == 7, "realloc keeps the contents");
    std::free(block);
    auto* const zeros = static_cast<unsigned char*>(std::calloc(size, 1));
    for (std::size_t i = 0; i < size; ++i) expect(zeros[i] == 0, "calloc clears");
    std::free(zeros);
  }
  for (std::size_t alignment = 16; alignment <= (std::size_t{256} << 10); alignment *= 2) {
    void* block = nullptr;
    expect(posix_memalign(&block, alignment, 100) == 0, "posix_memalign");
    expect(is_aligned(block, alignment), "posix_memalign aligns");
    std::free(block);
    std::free(std::aligned_alloc(alignment, alignment));
  }
  void* unchanged = &unchanged;
  expect(posix_memalign(&unchanged, 24, 1) == EINVAL && unchanged == &unchanged, "EINVAL");
  errno = 0;
  volatile std::size_t most = ~std::size_t{0};
  expect(std::malloc(most) == nullptr && errno == ENOMEM, "ENOMEM");
  expect(reallocarray(nullptr, most, 2) == nullptr, "the product overflows");
  expect(::operator new(most / 2, std::nothrow) == nullptr, "nothrow");
}

template <class Odd>
void check_scope() {
  std::vector<std::unique_ptr<char[]>> kept;
  kept.reserve(100);
  void* const before = ::operator new(3000);
  {
    allod::ThreadScope<Odd> scope{"odd"};
    for (int i = 0; i < 100; ++i) kept.emplace_back(new char[3000]);
    expect(scope.heap().contains(kept[0].get()), "the scope's heap serves the thread");
    void* const large = ::operator new(10'000);
    expect(!scope.heap().contains(large), "what it has no class for is the process's");
    ::operator delete(large);
    ::operator delete(before);
    if (Odd::kManyThreads) {
      std::jthread{[&] {
        kept.resize(50);
        expect(!scope.heap().contains(std::make_unique<char[]>(3000).get()), "no other thread");
      }};
    } else {
      kept.resize(50);
    }
    expect(scope.heap().figures().live_blocks == 50, "blocks find their heap");
    void* const plain = std::malloc(3000);
    expect(!scope.heap().contains(plain), "malloc is not asked to change");
    kept[0].reset(static_cast<char*>(std::realloc(kept[0].release(), 5000)));
    expect(!scope.heap().contains(kept[0].get()), "realloc leaves the scope's heap");
    std::free(plain);
    kept.clear();
  }
  expect(Heap::kServesAnySize && AllodProcess::heap().contains(std::make_unique<int>(1).get()),
         "afterwards the process serves the thread");
}

// Children of a process whose other threads allocate all the time.
void check_forks() {
  std::atomic<bool> stop{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&stop] {
      std::vector<std::string> strings;
      while (!stop) {
        strings.emplace_back(100, 'x');
        if (strings.size() > 3000) strings.clear();
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    expect(child >= 0, "fork");
    if (child == 0) {
      std::vector<std::string> strings;
      for (int n = 0; n < 2000; ++n) strings.emplace_back(50 + n % 100, 'y');
      std::thread{[] { free(malloc(100)); }}.join();
      _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "a child can allocate");
  }
  stop = true;
}

}  // namespace

int main() {
  check_surface();
  check_scope<allod::Tailored<OddParts>>();
  check_scope<allod::Tailored<SharedOddParts>>();
  check_forks();
  std::puts("done");
}

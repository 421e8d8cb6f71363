// A profiled program that does for a given time, all at once, what disturbs a profiler: threads
// come and go and pass blocks on, exceptions are thrown, libraries come and go, processes are
// forked and become other programs, signals interrupt everything, sampling is switched, and leaks
// are searched. Others look at its page meanwhile. Every block is verified. Prints how often each
// was done.
//
// usage: stress SECONDS
#include <allod.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Whoever does nothing for so long, on however slow a machine, is stuck.
constexpr std::chrono::seconds kStuck{120};

// What is done again and again, by a thread of its own.
struct Work {
  const char* name;
  void (*once)(std::minstd_rand& random);
  std::atomic<std::uint64_t> done{0};
};

std::atomic<bool> ending{false};
std::atomic<std::uint64_t> interruptions{0};
char visitor[4096];

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "stress: %s\n", what);
  std::abort();
}

// --- blocks that know what is in them -----------------------------------------------------

struct Block {
  unsigned char* memory = nullptr;
  std::size_t size = 0;
  unsigned char mark = 0;
};

std::size_t any_size(std::minstd_rand& random) {
  const std::size_t below = std::size_t{16} << random() % 12;
  return 1 + random() % (random() % 512 == 0 ? 8 << 20 : below);
}

Block make(std::minstd_rand& random) {
  const std::size_t size = any_size(random);
  const auto mark = static_cast<unsigned char>(random());
  auto* const memory = static_cast<unsigned char*>(std::malloc(size));
  if (memory == nullptr) give_up("no memory");
  memory[0] = memory[size / 2] = memory[size - 1] = mark;
  return {memory, size, mark};
}

void check(const Block& block) {
  const unsigned char* const memory = block.memory;
  for (const std::size_t at : {std::size_t{0}, block.size / 2, block.size - 1}) {
    if (memory[at] != block.mark) give_up("a block has changed");
  }
}

void end(const Block& block) {
  if (block.memory == nullptr) return;
  check(block);
  std::free(block.memory);
}

void grow(Block& block, std::minstd_rand& random) {
  if (block.memory == nullptr) return;
  check(block);
  const std::size_t kept = block.size / 2;
  block.size += any_size(random);
  block.memory = static_cast<unsigned char*>(std::realloc(block.memory, block.size));
  if (block.memory == nullptr) give_up("no memory");
  if (block.memory[kept] != block.mark) give_up("a block has changed as it grew");
  block.memory[block.size / 2] = block.memory[block.size - 1] = block.mark;
}

// --- what is done ---------------------------------------------------------------------------

void allocate(std::minstd_rand& random) {
  std::array<Block, 64> blocks;
  for (int i = 0; i < 1000; ++i) {
    Block& block = blocks[random() % blocks.size()];
    if (random() % 8 == 0) {
      grow(block, random);
    } else {
      end(block);
      block = make(random);
    }
  }
  for (const Block& block : blocks) end(block);
}

// Blocks that another thread frees.
std::array<std::atomic<Block*>, 256> passed{};

void pass_on(std::minstd_rand& random) {
  for (int i = 0; i < 500; ++i) {
    Block* const mine = new Block(make(random));
    Block* const other = passed[random() % passed.size()].exchange(mine);
    if (other == nullptr) continue;
    end(*other);
    delete other;
  }
}

void start_threads(std::minstd_rand& random) {
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([seed = static_cast<unsigned>(random())] {
      std::minstd_rand own{seed};
      pass_on(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void visit_and_catch(void (*visit)(int)) {
  try {
    visit(6);
    give_up("nothing was thrown");
  } catch (const std::string& thrown) {
    if (thrown.size() != 64) give_up("something else was thrown");
  }
}

[[gnu::noinline]] void throw_here(int depth) {
  const std::vector<std::string> names(3, std::string(50, 'h'));
  if (depth == 0) throw std::string(64, 't');
  throw_here(depth - 1);
}

void throw_and_catch(std::minstd_rand&) { visit_and_catch(throw_here); }

void load_and_unload(std::minstd_rand&) {
  void* const library = dlopen(visitor, RTLD_NOW);
  if (library == nullptr) give_up(dlerror());
  visit_and_catch(reinterpret_cast<void (*)(int)>(dlsym(library, "visit")));
  dlclose(library);
}

void wait_for(pid_t child) {
  if (child < 0) give_up("no child");
  int status = -1;
  while (waitpid(child, &status, 0) < 0) continue;
  if (status != 0) give_up("a child did not end well");
}

void fork_child(std::minstd_rand& random) {
  const pid_t child = fork();
  if (child == 0) {
    allocate(random);
    _exit(0);
  }
  wait_for(child);
}

void start_program(std::minstd_rand&) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(nowhere, STDOUT_FILENO);
    unsetenv("ALLOD_LIVE");
    setenv("ALLOD_PROFILE", "1000", 1);
    execlp("sort", "sort", "/etc/services", nullptr);
    _exit(1);
  }
  wait_for(child);
}

void switch_sampling(std::minstd_rand& random) {
  constexpr std::size_t kIntervals[] = {1, 100, 10'000, 1'000'000};
  if (allod_profile_start(kIntervals[random() % 4]) != 0) give_up("no sampling");
  if (random() % 4 == 0) allod_profile_stop();
  usleep(20'000);
}

void look_for_leaks(std::minstd_rand&) {
  allod_leaks_begin();
  if (allod_leaks_check() < 0) give_up("leaks could not be searched");
  usleep(200'000);
}

Work works[] = {{"allocate", allocate},      {"allocate too", allocate},
                {"pass on", pass_on},        {"start threads", start_threads},
                {"throw", throw_and_catch},  {"load", load_and_unload},
                {"fork", fork_child},        {"start programs", start_program},
                {"switch", switch_sampling}, {"leaks", look_for_leaks}};

void keep_on(Work& work, unsigned seed) {
  std::minstd_rand random{seed};
  while (!ending) {
    work.once(random);
    ++work.done;
  }
}

// --- around it --------------------------------------------------------------------------------

// Disturbs what a signal handler may disturb.
void interrupt(int) {
  volatile unsigned char scratch[512];
  for (volatile unsigned char& byte : scratch) byte = static_cast<unsigned char>(interruptions);
  ++interruptions;
}

void interrupt_all_the_time() {
  struct sigaction action = {};
  action.sa_handler = interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const itimerval often = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_PROF, &often, nullptr);
}

void find_visitor() {
  const ssize_t length = readlink("/proc/self/exe", visitor, sizeof visitor - 64);
  if (length <= 0) give_up("where is the program?");
  std::strcpy(std::strrchr(visitor, '/') + 1, "profile/libprofile_visitor.so");
}

// Says who is stuck, before anybody waits for it.
void watch(Clock::time_point until) {
  struct Seen {
    std::uint64_t done = 0;
    Clock::time_point at = Clock::now();
  };
  std::array<Seen, std::size(works)> seen;
  while (Clock::now() < until) {
    usleep(100'000);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const std::uint64_t done = works[i].done;
      if (done != seen[i].done) seen[i] = {done, Clock::now()};
      if (Clock::now() - seen[i].at > kStuck) give_up(works[i].name);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto until = Clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  find_visitor();
  interrupt_all_the_time();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::size(works); ++i)
    threads.emplace_back(keep_on, std::ref(works[i]), i + 1);
  watch(until);
  ending = true;
  for (std::thread& thread : threads) thread.join();
  for (const Work& work : works) std::printf("%s: %ju\n", work.name, std::uintmax_t{work.done});
  std::printf("interruptions: %ju\n", std::uintmax_t{interruptions});
}

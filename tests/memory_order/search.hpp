// One search through the executions of a scenario: its threads are fibers, of which each stops
// before every step. explore.cpp runs them, choices.cpp decides which step comes next, and
// steps.cpp performs it.
#pragma once

#include "explore.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <tuple>

namespace order {

inline constexpr std::size_t kStackBytes = std::size_t{256} << 10;
inline constexpr unsigned kMostRepeats = 200;
// How often a thread may see the same overwritten value at the same place of the program.
inline constexpr unsigned kMostStale = 2;
inline constexpr std::uint64_t kMostSteps = 20'000;

// The thread-local variables of the program, which each fiber has of its own.
struct ThreadLocals {
  char* begin = nullptr;
  std::size_t bytes = 0;

  ThreadLocals();
};

struct Fiber {
  enum class State : std::uint8_t { ready, waiting, done };

  char* stack = nullptr;
  ucontext_t context;
  jmp_buf point;
  bool is_started = false;
  State state = State::done;
  std::vector<char> locals;

  Step pending;
  std::uint64_t result = 0;
  bool is_asleep = false;  // the step was executed in all ways but for what is new since
  std::uint32_t slept_stores = 0;
  std::uint64_t slept_steps = 0, slept_futexes = 0;

  // The last step, if it was a load.
  Site last_site = 0;
  std::uint32_t last_location = kNoLocation, last_store = 0;
  unsigned repeats = 0;
  std::map<std::tuple<Site, std::uint32_t, std::uint32_t>, unsigned> stale;  // by location, store
  std::vector<std::uint32_t> looked_at;  // locations, since the last yield
};

struct Choice {
  std::uint8_t thread;
  std::uint32_t which;  // the store that is read, or the position of the one that is written
};
struct Node {
  std::vector<Choice> choices;
  std::size_t at = 0;
};

class Search {
 public:
  Search(const Scenario& scenario, const Options& options)
      : scenario_{scenario}, options_{options}, random_{options.seed} {
    for (unsigned i = 1; i <= scenario.threads; ++i) {
      void* const stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) std::abort();
      fibers_[i].stack = static_cast<char*>(stack);
    }
  }
  ~Search() {
    for (unsigned i = 1; i <= scenario_.threads; ++i) munmap(fibers_[i].stack, kStackBytes);
  }

  Result run();
  std::uint64_t take_step(Step& step);
  void access(std::uintptr_t address, unsigned bytes, bool is_write, Site site);
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
    if (current_ != 0) leave();
    is_over_ = true;
  }
  void watch(std::uintptr_t from, std::size_t bytes) { watched_.emplace_back(from, from + bytes); }
  void note(const std::string& outcome) { outcome_ = outcome; }
  [[nodiscard]] unsigned current() const noexcept { return current_; }

 private:
  void execute();
  void start_fibers();
  void resume(unsigned thread);
  [[noreturn]] static void enter();
  void leave() {
    is_over_ = true;
    switch_to_scheduler();
  }
  void switch_to_scheduler();

  bool advance();
  bool run_at_once();
  [[nodiscard]] bool repeats(unsigned thread);
  [[nodiscard]] bool is_immediate(unsigned thread);
  void gather(unsigned thread, std::vector<Choice>& out);
  void gather_loads(unsigned thread, std::vector<Choice>& out);
  void put_to_sleep(unsigned thread);
  std::size_t choose(std::vector<Choice>& choices);
  void perform(unsigned thread, std::uint32_t which);
  void perform_access(unsigned thread, std::uint32_t which);
  void perform_wait(unsigned thread);
  // Its next step is none.
  static void go_on_later(Fiber& fiber) {
    fiber.pending.kind = Kind::fence;
    fiber.pending.order = Order::none;
    fiber.pending.site = 0;
  }
  bool next_branch();
  void report_stop();
  [[nodiscard]] bool is_hopeless();

  [[nodiscard]] Order weakened(const Step& step) const {
    const auto place = options_.weakened.find(step.site);
    return place == options_.weakened.end() ? step.order : place->second;
  }
  [[nodiscard]] std::uint32_t locate(const Step& step) {
    return memory_.locate(step.address, step.bytes);
  }
  std::uint64_t next_random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  const Scenario& scenario_;
  const Options& options_;
  Result result_;
  Memory memory_;
  std::array<Fiber, kThreads> fibers_;
  ThreadLocals thread_locals_;
  std::vector<char> own_locals_;
  jmp_buf scheduler_;
  unsigned current_ = 0;
  bool is_over_ = false;
  bool was_stale_ = false;  // the last step read what was overwritten
  std::string failure_, outcome_;
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> watched_;
  std::vector<std::pair<std::uintptr_t, unsigned>> sleepers_;  // by the word that they wait for

  std::vector<Node> nodes_;
  std::size_t depth_ = 0;
  std::uint64_t steps_ = 0, futexes_ = 0, barriers_ = 0, random_;
  std::uint64_t stores_ = 0;

  // By address, learned in all executions so far.
  std::map<std::uintptr_t, unsigned> writers_;          // a bit for each thread
  std::map<std::uintptr_t, unsigned> private_readers_;  // that took themselves for the only ones
  std::set<std::uintptr_t> taken_as_final_;             // for no other writer was known
  std::set<std::uintptr_t> futex_words_;
  bool has_barriers_ = false;
  bool must_begin_anew_ = false;
};

}  // namespace order

#include "explore.hpp"

#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

namespace order {

std::vector<Scenario>& scenarios() {
  static std::vector<Scenario> all;
  return all;
}

namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
constexpr unsigned kMostRepeats = 200;
// How often a thread may see the same overwritten value at the same place of the program.
constexpr unsigned kMostStale = 2;
constexpr std::uint64_t kMostSteps = 20'000;

// The thread-local variables of the program, which each fiber has of its own.
struct ThreadLocals {
  char* begin = nullptr;
  std::size_t bytes = 0;

  ThreadLocals() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* self) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
            auto* const locals = static_cast<ThreadLocals*>(self);
            locals->begin = static_cast<char*>(info->dlpi_tls_data);
            locals->bytes = info->dlpi_phdr[i].p_memsz;
          }
          return 1;  // the program is the first
        },
        this);
  }
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

Search* search = nullptr;

Result Search::run() {
  search = this;
  for (;;) {
    const std::uint64_t seed = random_;
    execute();
    if (is_over_ && !failure_.empty()) {
      result_.failure = failure_;
      result_.seed = seed;
      break;
    }
    if (options_.is_random) {
      if (result_.executions + result_.inconsistent >= options_.most_executions) break;
      continue;
    }
    if (must_begin_anew_) {
      must_begin_anew_ = false;
      private_readers_.clear();
      taken_as_final_.clear();
      nodes_.clear();
      result_.executions = result_.redundant = result_.inconsistent = 0;
      result_.outcomes.clear();
      continue;
    }
    if (!next_branch()) {
      result_.is_complete = true;
      break;
    }
    if (result_.executions + result_.redundant + result_.inconsistent >= options_.most_executions) {
      break;
    }
  }
  search = nullptr;
  return result_;
}

// The next execution differs in the last choice that has another way.
bool Search::next_branch() {
  while (!nodes_.empty()) {
    Node& node = nodes_.back();
    if (++node.at < node.choices.size()) return true;
    nodes_.pop_back();
  }
  return false;
}

void Search::execute() {
  memory_.reset();
  watched_.clear();
  sleepers_.clear();
  failure_.clear();
  outcome_.clear();
  is_over_ = false;
  depth_ = 0;
  steps_ = futexes_ = barriers_ = stores_ = 0;
  current_ = 0;
  own_locals_.assign(thread_locals_.begin, thread_locals_.begin + thread_locals_.bytes);
  scenario_.begin();
  start_fibers();
  while (!is_over_ && advance()) {
  }
  memory_.join_all();
  const bool is_whole = !is_over_;
  if (is_whole) scenario_.check();
  if (!memory_.is_consistent()) {
    ++result_.inconsistent;
    failure_.clear();
  } else if (is_whole) {
    ++result_.executions;
    if (!outcome_.empty()) result_.outcomes.insert(outcome_);
  }
  scenario_.end();
  std::memcpy(thread_locals_.begin, own_locals_.data(), thread_locals_.bytes);
}

void Search::start_fibers() {
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    Fiber& fiber = fibers_[thread];
    memory_.begin(thread);
    fiber.is_started = false;
    fiber.state = Fiber::State::ready;
    fiber.is_asleep = false;
    fiber.last_site = 0;
    fiber.repeats = 0;
    fiber.looked_at.clear();
    fiber.stale.clear();
    fiber.locals.assign(thread_locals_.begin, thread_locals_.begin + thread_locals_.bytes);
  }
  for (unsigned thread = 1; thread <= scenario_.threads && !is_over_; ++thread) resume(thread);
}

// --- fibers -----------------------------------------------------------------------

void Search::enter() {
  search->scenario_.run(search->current_);
  search->fibers_[search->current_].state = Fiber::State::done;
  search->switch_to_scheduler();
  std::abort();
}

void Search::resume(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  std::vector<char> outer{thread_locals_.begin, thread_locals_.begin + thread_locals_.bytes};
  std::memcpy(thread_locals_.begin, fiber.locals.data(), thread_locals_.bytes);
  current_ = thread;
  if (_setjmp(scheduler_) == 0) {
    if (fiber.is_started) _longjmp(fiber.point, 1);
    fiber.is_started = true;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Search::enter, 0);
    setcontext(&fiber.context);
  }
  Fiber& left = fibers_[current_];
  std::memcpy(left.locals.data(), thread_locals_.begin, thread_locals_.bytes);
  std::memcpy(thread_locals_.begin, outer.data(), thread_locals_.bytes);
  current_ = 0;
}

void Search::switch_to_scheduler() {
  if (_setjmp(fibers_[current_].point) == 0) _longjmp(scheduler_, 1);
}

std::uint64_t load_plainly(std::uintptr_t address, unsigned bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), bytes);
  return value;
}

// Nobody else runs.
std::uint64_t outside(const Step& step) {
  if (step.bytes == 0) return 0;
  const std::uint64_t old = load_plainly(step.address, step.bytes);
  std::uint64_t value = old;
  if (step.kind == Kind::store) value = step.operand;
  if (step.kind == Kind::modify) value = step.function(old, step.operand);
  if (step.kind == Kind::compare && old == step.expected) value = step.operand;
  if (value != old) std::memcpy(reinterpret_cast<void*>(step.address), &value, step.bytes);
  return old;
}

std::uint64_t Search::take_step(Step& step) {
  if (current_ == 0) return outside(step);
  Fiber& fiber = fibers_[current_];
  if (step.site != 0) {
    result_.sites.try_emplace(step.site, SiteUse{step.operation, step.order, step.failure});
  }
  fiber.pending = step;
  switch_to_scheduler();
  return fiber.result;
}

void Search::access(std::uintptr_t address, unsigned bytes, bool is_write, Site site) {
  if (current_ == 0) return;
  for (const auto& [from, to] : watched_) {
    if (address < from || address >= to) continue;
    if (memory_.access(current_, address, bytes, is_write)) return;
    char text[128];
    std::snprintf(text, sizeof text, "data race: a plain %s of %u bytes by thread %u at %#zx",
                  is_write ? "write" : "read", bytes, current_, static_cast<std::size_t>(site));
    fail(text);
  }
}

// --- what comes next --------------------------------------------------------------

// A load that is repeated in vain, as in a loop that waits, returns the same again. That it returns
// something new is what the first of them may do as well.
bool Search::repeats(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (step.kind != Kind::load || fiber.last_site != step.site || fiber.repeats >= kMostRepeats) {
    return false;
  }
  return fiber.last_location == locate(step) &&
         memory_.may_read(thread, fiber.last_location, fiber.last_store);
}

bool Search::is_immediate(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (repeats(thread)) return true;
  if (has_barriers_) return false;
  switch (step.kind) {
    case Kind::fence:
      return true;
    case Kind::store:
      return !futex_words_.contains(step.address);
    case Kind::load:
    case Kind::modify:
    case Kind::compare: {
      const auto place = writers_.find(step.address);
      const unsigned others = place == writers_.end() ? 0 : place->second & ~(1U << thread);
      if (others != 0 || futex_words_.contains(step.address)) return false;
      private_readers_[step.address] |= 1U << thread;
      return true;
    }
    default:
      return false;
  }
}

void Search::gather_loads(unsigned thread, std::vector<Choice>& out) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  const std::uint32_t location = locate(step);
  const Location& place = memory_.at(location);
  const auto t = static_cast<std::uint8_t>(thread);
  if (repeats(thread)) return out.push_back({t, fiber.last_store});
  // For ever, unless something new comes.
  const bool waits = step.kind == Kind::load && fiber.last_site == step.site &&
                     fiber.last_location == location && fiber.repeats >= kMostRepeats;
  const bool is_woken = fiber.slept_futexes != futexes_ && futex_words_.contains(step.address);
  const std::uint32_t from = fiber.is_asleep && !is_woken ? fiber.slept_stores : 0;
  for (std::size_t i = place.order.size(); i-- > 0;) {
    const std::uint32_t store = place.order[i];
    if (!memory_.may_read(thread, location, store)) break;
    if (store < from || (waits && store == fiber.last_store)) continue;
    if (i + 1 != place.order.size()) {
      const auto seen = fiber.stale.find({step.site, location, store});
      if (seen != fiber.stale.end() && seen->second >= kMostStale) continue;
    }
    const bool changes = step.kind == Kind::modify ||
                         (step.kind == Kind::compare && place.stores[store].value == step.expected);
    if (changes && place.stores[store].is_followed) continue;
    out.push_back({t, store});
  }
}

void Search::gather(unsigned thread, std::vector<Choice>& out) {
  Fiber& fiber = fibers_[thread];
  if (fiber.state != Fiber::State::ready) return;
  const Step& step = fiber.pending;
  const auto t = static_cast<std::uint8_t>(thread);
  switch (step.kind) {
    case Kind::load:
    case Kind::modify:
    case Kind::compare:
      return gather_loads(thread, out);
    case Kind::store: {
      if (fiber.is_asleep && fiber.slept_futexes == futexes_) return;
      std::vector<std::uint32_t> positions;
      memory_.positions(thread, locate(step), positions);
      for (const std::uint32_t position : positions) out.push_back({t, position});
      return;
    }
    case Kind::fence:
      if (!fiber.is_asleep) out.push_back({t, 0});
      return;
    case Kind::wake:
      if (!fiber.is_asleep || fiber.slept_futexes != futexes_) out.push_back({t, 0});
      return;
    case Kind::barrier:
      if (!fiber.is_asleep || fiber.slept_steps != steps_) out.push_back({t, 0});
      return;
    case Kind::wait:
      if (!fiber.is_asleep || fiber.slept_futexes != futexes_ || fiber.slept_stores != stores_) {
        out.push_back({t, 0});
      }
      return;
    case Kind::yield: {
      if (fiber.is_asleep && fiber.slept_stores == stores_) return;
      const auto is_new = [&](std::uint32_t location) {
        return memory_.seen(thread, location) != memory_.last(location);
      };
      const auto& looked_at = fiber.looked_at;
      if (looked_at.empty() || std::any_of(looked_at.begin(), looked_at.end(), is_new)) {
        out.push_back({t, 0});
      }
      return;
    }
  }
}

void Search::put_to_sleep(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  fiber.is_asleep = true;
  fiber.slept_steps = steps_;
  fiber.slept_futexes = futexes_;
  switch (fiber.pending.kind) {
    case Kind::load:
    case Kind::modify:
    case Kind::compare:
      fiber.slept_stores =
          static_cast<std::uint32_t>(memory_.at(locate(fiber.pending)).stores.size());
      break;
    default:
      fiber.slept_stores = static_cast<std::uint32_t>(stores_);
  }
}

std::size_t Search::choose(std::vector<Choice>& choices) {
  if (options_.is_random) return next_random() % choices.size();
  if (depth_ == nodes_.size()) {
    nodes_.emplace_back();
    nodes_.back().choices = choices;
  } else if (nodes_[depth_].choices.size() != choices.size()) {
    std::fprintf(stderr, "an execution does not repeat\n");
    std::abort();
  }
  return nodes_[depth_++].at;
}

// Executes the next step that cannot matter to when others take theirs.
bool Search::run_at_once() {
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    Fiber& fiber = fibers_[thread];
    if (fiber.state != Fiber::State::ready || !is_immediate(thread)) continue;
    std::vector<Choice> choices;
    gather(thread, choices);
    if (choices.empty()) continue;
    perform(thread, choices[choices.size() > 1 ? choose(choices) : 0].which);
    return true;
  }
  return false;
}

bool Search::advance() {
  if (steps_ >= kMostSteps) {
    fail("no end");
    return false;
  }
  if (run_at_once()) return !is_over_;
  if (is_hopeless()) {
    ++result_.redundant;
    is_over_ = true;
    return false;
  }
  std::vector<Choice> choices;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) gather(thread, choices);
  if (choices.empty()) {
    report_stop();
    return false;
  }
  // At random, each thread is as likely as another, and so is the latest store as all others.
  std::size_t chosen;
  if (options_.is_random) {
    const std::size_t any = next_random() % choices.size();
    const unsigned thread = choices[any].thread;
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].thread == thread) own.push_back(i);
    }
    chosen = next_random() % 2 == 0 ? own[0] : own[next_random() % own.size()];
  } else {
    chosen = choices.size() > 1 ? choose(choices) : 0;
    const unsigned thread = choices[chosen].thread;
    for (std::size_t i = 0; i < chosen; ++i) {
      if (choices[i].thread != thread) put_to_sleep(choices[i].thread);
    }
  }
  perform(choices[chosen].thread, choices[chosen].which);
  return true;
}

// Whether a thread waits for something new where nobody writes any more.
bool Search::is_hopeless() {
  if (has_barriers_) return false;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    const Fiber& fiber = fibers_[thread];
    if (fiber.state != Fiber::State::ready || !fiber.is_asleep) continue;
    const Step& step = fiber.pending;
    if (step.kind > Kind::compare || step.kind == Kind::store) continue;
    if (futex_words_.contains(step.address)) continue;
    if (memory_.at(locate(step)).stores.size() > fiber.slept_stores) continue;
    const unsigned writers = writers_[step.address];
    bool is_hopeless = true;
    for (unsigned other = 1; other <= scenario_.threads; ++other) {
      const bool writes = other != thread && (writers & (1U << other)) != 0;
      if (writes && fibers_[other].state != Fiber::State::done) is_hopeless = false;
    }
    if (!is_hopeless) continue;
    taken_as_final_.insert(step.address);
    return true;
  }
  return false;
}

// Nothing can happen any more.
void Search::report_stop() {
  bool is_any = false;
  for (unsigned thread = 1; thread <= scenario_.threads; ++thread) {
    const Fiber& fiber = fibers_[thread];
    if (fiber.state == Fiber::State::done) continue;
    is_any = true;
    if (fiber.state == Fiber::State::ready && fiber.is_asleep) {
      ++result_.redundant;
      is_over_ = true;
      return;
    }
  }
  if (is_any) fail("threads wait for ever");
}

// --- steps ------------------------------------------------------------------------

void Search::perform(unsigned thread, std::uint32_t which) {
  Fiber& fiber = fibers_[thread];
  ++steps_;
  fiber.is_asleep = false;
  const Step step = fiber.pending;
  const bool was_load = step.kind == Kind::load;
  was_stale_ = false;
  switch (step.kind) {
    case Kind::fence:
      if (const Order order = weakened(step); order != Order::none) memory_.fence(thread, order);
      break;
    case Kind::yield:
      for (const std::uint32_t location : fiber.looked_at) memory_.refresh(thread, location);
      fiber.looked_at.clear();
      break;
    case Kind::barrier:
      if (!has_barriers_) has_barriers_ = must_begin_anew_ = true;
      if (weakened(step) == Order::none) break;
      for (unsigned i = 1; i <= scenario_.threads; ++i) fibers_[i].is_asleep = false;
      memory_.barrier(thread, scenario_.threads);
      break;
    case Kind::wait:
      perform_wait(thread);
      break;
    case Kind::wake: {
      ++futexes_;
      std::uint64_t left = step.operand;
      for (auto at = sleepers_.begin(); at != sleepers_.end() && left > 0;) {
        if (at->first != step.address) {
          ++at;
          continue;
        }
        fibers_[at->second].state = Fiber::State::ready;
        at = sleepers_.erase(at);
        --left;
        // The woken thread has nothing pending but to go on.
      }
      break;
    }
    default:
      perform_access(thread, which);
  }
  if (!was_load && step.order != Order::none) fiber.last_site = 0;
  if (was_stale_ && step.order == Order::seq_cst && !memory_.is_consistent()) {
    is_over_ = true;  // counted at the end
    return;
  }
  if (memory_.has_race) return fail("data race: an atomic access and a plain one");
  if (fiber.state != Fiber::State::ready) return;
  if (has_barriers_ && step.kind <= Kind::compare) {
    // A barrier may come before the plain accesses that follow.
    go_on_later(fiber);
  } else {
    resume(thread);
  }
}

void Search::perform_access(unsigned thread, std::uint32_t which) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  const std::uint32_t location = locate(step);
  const Order order = weakened(step);
  bool writes = true;
  if (step.kind == Kind::store) {
    memory_.write(thread, location, which, step.operand, order);
  } else {
    const std::uint64_t old = memory_.at(location).stores[which].value;
    if (which != memory_.last(location)) {
      ++fiber.stale[{step.site, location, which}];
      was_stale_ = true;
    }
    fiber.result = old;
    if (step.kind == Kind::modify) {
      memory_.modify(thread, location, which, step.function(old, step.operand), order);
    } else if (step.kind == Kind::compare && old == step.expected) {
      memory_.modify(thread, location, which, step.operand, order);
    } else {
      writes = false;
      const bool is_weakened = order != step.order;
      memory_.read(
          thread, location, which,
          step.kind == Kind::compare ? (is_weakened ? Order::relaxed : step.failure) : order);
    }
  }
  if (step.kind == Kind::load) {
    fiber.repeats =
        fiber.last_site == step.site && fiber.last_location == location && fiber.last_store == which
            ? fiber.repeats + 1
            : 0;
    fiber.last_site = step.site;
    fiber.last_location = location;
    fiber.last_store = which;
  }
  if (!writes) fiber.looked_at.push_back(location);
  if (step.kind == Kind::load) return;
  if (writes) ++stores_;
  // One that did not write may do so in another execution.
  unsigned& writers = writers_[step.address];
  if ((writers & (1U << thread)) != 0) return;
  writers |= 1U << thread;
  const auto readers = private_readers_.find(step.address);
  if (readers != private_readers_.end() && (readers->second & ~(1U << thread)) != 0) {
    must_begin_anew_ = true;
  }
  if (taken_as_final_.contains(step.address)) must_begin_anew_ = true;
}

// The system compares, and puts to sleep, while nobody wakes.
void Search::perform_wait(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  const Step& step = fiber.pending;
  if (futex_words_.insert(step.address).second) must_begin_anew_ = true;
  ++futexes_;
  const std::uint32_t location = locate(step);
  memory_.refresh(thread, location);
  const Location& place = memory_.at(location);
  if (place.stores[memory_.last(location)].value != step.expected) return;
  fiber.state = Fiber::State::waiting;
  sleepers_.emplace_back(step.address, thread);
  go_on_later(fiber);  // when it is woken
}

}  // namespace

Result explore(const Scenario& scenario, const Options& options) {
  Search one{scenario, options};
  return one.run();
}

void require(bool condition, const char* what) {
  if (!condition) search->fail(what);
}
unsigned self() noexcept { return search == nullptr ? 0 : search->current(); }
void watch(const void* from, std::size_t bytes) {
  search->watch(reinterpret_cast<std::uintptr_t>(from), bytes);
}
void note(const std::string& outcome) { search->note(outcome); }

std::uint64_t step(Step step) {
  return search == nullptr ? outside(step) : search->take_step(step);
}
void plain(std::uintptr_t address, unsigned bytes, bool is_write, Site site) {
  if (search != nullptr) search->access(address, bytes, is_write, site);
}

static std::uint64_t system_step(Kind kind, const void* word, std::uint64_t expected,
                                 std::uint64_t operand) {
  Step call{};
  call.kind = kind;
  call.bytes = word == nullptr ? 0 : sizeof(std::uint32_t);
  call.order = call.failure = Order::seq_cst;
  call.address = reinterpret_cast<std::uintptr_t>(word);
  call.expected = expected;
  call.operand = operand;
  if (kind == Kind::barrier) {
    call.operation = "barrier";
    call.site = kBarrierSite;
  }
  return step(call);
}
void yield() { system_step(Kind::yield, nullptr, 0, 0); }
void barrier() { system_step(Kind::barrier, nullptr, 0, 0); }
void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t expected) {
  system_step(Kind::wait, word, expected, 0);
}
void futex_wake(std::atomic<std::uint32_t>* word, int count) {
  system_step(Kind::wake, word, 0, static_cast<std::uint64_t>(count));
}

}  // namespace order

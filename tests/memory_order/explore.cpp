#include "search.hpp"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace order {

std::vector<Scenario>& scenarios() {
  static std::vector<Scenario> all;
  return all;
}

namespace {

Search* search = nullptr;

}  // namespace

ThreadLocals::ThreadLocals() {
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

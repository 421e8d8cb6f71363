#include "profile/book.hpp"

#include <string.h>

#include <algorithm>

#include "profile/exponential.hpp"
#include "profile/probe.hpp"

namespace allod::profile {

constinit Book book;
constinit Timeline timeline;
[[gnu::tls_model("initial-exec")]] thread_local constinit bool busy = false;

namespace {

KnownStack*& next_stack(KnownStack& stack) noexcept { return stack.next_in_bucket; }

// To be called before `live` of the stack changes.
void before_change(KnownStack& stack) noexcept {
  if (stack.changed == book.peaks) return;
  stack.before_change = stack.live;
  stack.changed = book.peaks;
}

void note_time(std::uint64_t now) noexcept {
  timeline.note(now > book.since_ms ? now - book.since_ms : 0, book.live.bytes, book.total.bytes);
}

void count_out(const Sample& sample, std::uint64_t now) noexcept {
  KnownStack& stack = *sample.stack();
  const Sum weight = weight_of(sample);
  const std::uint64_t life = now > sample.birth_ms ? now - sample.birth_ms : 0;
  before_change(stack);
  subtract(stack.live, weight);
  --stack.live_samples;
  ++stack.freed_samples;
  stack.births_ms -= sample.birth_ms;
  stack.lives_ms += life;
  subtract(book.live, weight);
  --book.live_samples;
  note_time(now);
  const unsigned place = life == 0 ? 0 : highest_bit(life) + 1;
  add(book.lifetimes[place < ALLOD_PROFILE_LIFETIMES ? place : ALLOD_PROFILE_LIFETIMES - 1],
      weight);
}

}  // namespace

std::uint64_t count_x256(const Sample& sample) noexcept {
  const std::size_t interval = book.rates.interval(sample.rate);
  if (interval <= 1) return 256;
  const double points = static_cast<double>(sample.bytes()) / static_cast<double>(interval);
  return (static_cast<std::uint64_t>(512 / chance_within(points)) + 1) / 2;
}

Sum weight_of(const Sample& sample) noexcept {
  const std::uint64_t count = count_x256(sample);
  return {count, sample.bytes() * count, sample.requested * count};
}

KnownStack* remember(const std::uintptr_t* frames, std::uint32_t depth, bool* is_new) noexcept {
  std::uint64_t hash = depth;
  for (std::uint32_t i = 0; i < depth; ++i) {
    hash = (hash ^ frames[i]) * kMix;
    hash ^= hash >> 29;
  }
  hash *= kMix;
  if (!book.stacks.make_room(next_stack, [](KnownStack& known) { return known.hash; })) {
    return nullptr;
  }
  const std::size_t used = depth * sizeof *frames;
  for (KnownStack* known = book.stacks.at(hash); known != nullptr; known = known->next_in_bucket) {
    if (known->hash == hash && known->depth == depth && !known->is_complete &&
        memcmp(known->frames, frames, used) == 0) {
      return known;
    }
  }
  auto* const known = static_cast<KnownStack*>(
      engine().space().allocate_metadata(offsetof(KnownStack, frames) + used));
  if (known == nullptr) return nullptr;
  known->id = ++book.stack_count;
  known->hash = hash;
  known->changed = book.peaks;
  known->depth = depth;
  memcpy(known->frames, frames, used);
  KnownStack*& list = book.stacks.at(hash);
  known->next_in_bucket = list;
  list = known;
  ++book.stacks.entries;
  (book.last == nullptr ? book.first : book.last->next).store(known, std::memory_order_release);
  book.last = known;
  *is_new = true;
  return known;
}

Sum peak_of(const KnownStack& stack) noexcept {
  return stack.changed == book.peaks ? stack.before_change : stack.live;
}

Sample* new_sample(KnownStack* stack, const void* block, std::size_t interval) noexcept {
  const unsigned rate = book.rates.number_of(interval);
  if (stack == nullptr || rate == Rates::kNone) return nullptr;
  Sample* const sample = book.samples.add(bare_address(block));
  if (sample == nullptr) return nullptr;
  sample->set_stack(stack);
  sample->rate = rate & 0xff;
  sample->is_forgiven = 0;
  return sample;
}

// True at a new peak.
bool count_in(const Sample& sample) noexcept {
  KnownStack& stack = *sample.stack();
  const Sum weight = weight_of(sample);
  before_change(stack);
  add(stack.live, weight);
  add(stack.total, weight);
  ++stack.live_samples;
  ++stack.total_samples;
  stack.births_ms += sample.birth_ms;
  add(book.live, weight);
  add(book.total, weight);
  ++book.live_samples;
  ++book.total_samples;
  note_time(sample.birth_ms);
  if (book.live.bytes <= book.peak.bytes) return false;
  book.peak = book.live;
  book.peak_ms = sample.birth_ms;
  ++book.peaks;
  return true;
}

void forget_locked(void* block, std::uint64_t now) noexcept {
  Sample* const sample = book.samples.remove(bare_address(block));
  if (sample == nullptr) return;
  count_out(*sample, now);
  ALLOD_PROBE("sample_freed", address_of(block), std::uint64_t{sample->requested},
              told(weight_of(*sample)).bytes, now - sample->birth_ms);
}

}  // namespace allod::profile

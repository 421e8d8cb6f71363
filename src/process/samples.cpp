// Draws both kinds of samples at once: profiled and guarded ones. The union of two Poisson
// processes is one; which of the two a point belongs to is drawn when it is reached.
#include "allod/base/random.hpp"
#include "guards/guards.hpp"
#include "instance/process.hpp"
#include "profile/exponential.hpp"

namespace allod {

namespace {

// Uniform in [0, 1).
double uniform() noexcept { return static_cast<double>(random::word() >> 11) * 0x1p-53; }

bool is_guarded_size(std::size_t bytes) noexcept {
  return Guards::is_on() && bytes <= Guards::largest();
}

// The probabilities that a block of `bytes` is a sample. Profiled samples are points among bytes,
// guarded ones points among blocks.
struct Chances {
  double profiled;
  double guarded;

  [[nodiscard]] double any() const noexcept { return profiled + guarded - profiled * guarded; }
};
double chance_of(double points, bool always) noexcept { return always ? 1 : chance_within(points); }

Chances chances_of(std::size_t bytes) noexcept {
  Chances chances{0, 0};
  if (const std::size_t interval = Profile::interval(); interval != 0) {
    chances.profiled =
        chance_of(static_cast<double>(bytes) / static_cast<double>(interval), interval == 1);
  }
  if (is_guarded_size(bytes)) {
    const std::size_t period = Guards::period();
    chances.guarded = chance_of(1 / static_cast<double>(period), period == 1);
  }
  return chances;
}

}  // namespace

std::uint64_t Samples::draw(std::size_t bytes) noexcept {
  const std::size_t interval = Profile::interval();
  const std::size_t period = is_guarded_size(bytes) ? Guards::period() : 0;
  if (interval == 1 || period == 1) return 1;
  double points = 0;  // for each byte
  if (interval != 0) points += 1 / static_cast<double>(interval);
  if (period != 0) points += 1 / (static_cast<double>(period) * static_cast<double>(bytes));
  if (points == 0) return kNever;
  return 1 + static_cast<std::uint64_t>(exponential(random::word()) / points);
}

bool Samples::is_due(std::size_t bytes) noexcept { return uniform() < chances_of(bytes).any(); }

// One random number decides both, so that each kind keeps its own probability, both coincide as
// often as by chance, and at least one applies.
void* Samples::allocate(std::size_t size, std::size_t alignment, std::size_t bytes,
                        bool* zero) noexcept {
  if (!is_guarded_size(bytes)) return Profile::allocate(size, alignment, bytes, zero);
  const Chances chances = chances_of(bytes);
  const double drawn = uniform() * chances.any();
  const bool is_profiled = drawn < chances.profiled;
  if (drawn >= chances.any() - chances.guarded) {
    if (void* const block = Guards::allocate(size, alignment)) {
      if (zero != nullptr) *zero = true;
      if (is_profiled) Profile::note(block, size, bytes);
      return block;
    }
  }
  return is_profiled ? Profile::allocate(size, alignment, bytes, zero) : nullptr;
}

bool Samples::forget(void* block) noexcept {
  if (Profile::may_know() && !Profile::forget(block)) return false;
  if (!Guards::holds(block)) return true;
  Guards::release(block);
  return false;
}

}  // namespace allod

// Minimises sums of products in two levels: expand, irredundant and reduce, again and again, in the
// manner of espresso (R. Brayton, G. Hachtel, C. McMullen, A. Sangiovanni-Vincentelli, "Logic
// Minimization Algorithms for VLSI Synthesis", 1984). Espresso has been a measure of allocators
// since B. Zorn and D. Grunwald, "Empirical Measurements of Six Allocation-intensive C Programs",
// 1992. Each product is a block, each sum an array that grows, and both live for one step of a
// recursion.
#include <algorithm>
#include <bit>
#include <utility>

#include "harness.hpp"

namespace {

constexpr std::uint64_t kMostInputs = 24;
constexpr std::uint64_t kFirst = 0x5555555555555555U;  // the first bit of every input

std::uint64_t g_inputs = 14;
std::uint64_t g_cubes = 40;
std::uint64_t g_literals = 6;
std::uint64_t g_rounds = 350;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"inputs", &g_inputs, 4, kMostInputs, "inputs of a function"},
    {"cubes", &g_cubes, 1, 1'000, "products that a function is the sum of"},
    {"literals", &g_literals, 1, kMostInputs, "inputs of a product, if all are different"},
    {"rounds", &g_rounds, 1, 1'000'000, "functions that are minimised"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the functions"},
};
bench::Workload g_workload("logic", "two-level logic minimisation", kParameters);

std::uint64_t g_made = 0;

// The bits of a product of literals. Each input has two: it may be 0, it may be 1. Both are set
// where the product does not depend on it; if both are clear, the product is empty.
using Bits = std::uint64_t;
Bits g_all;

// The first bit of each input on which the product depends.
Bits literals(Bits bits) { return (~bits | (~bits >> 1U)) & g_all & kFirst; }
bool contains(Bits outer, Bits inner) { return (inner & ~outer) == 0; }
bool intersect(Bits a, Bits b) {
  return (((a & b) | ((a & b) >> 1U)) & kFirst) == (g_all & kFirst);
}

struct Cube {
  Bits bits;
  int count;  // of literals
};

Cube* make_cube(Bits bits) {
  ++g_made;
  auto* cube = reinterpret_cast<Cube*>(bench::allocate(sizeof(Cube)));
  *cube = {bits, std::popcount(literals(bits))};
  return cube;
}

// Few literals first, and equal products side by side.
bool before(const Cube* a, const Cube* b) {
  return a->count != b->count ? a->count < b->count : a->bits < b->bits;
}

// A sum of products; it owns them.
class Cover {
 public:
  Cover() = default;
  Cover(Cover&& other) noexcept
      : cubes_(std::exchange(other.cubes_, nullptr)),
        count_(std::exchange(other.count_, 0)),
        room_(std::exchange(other.room_, 0)) {}
  Cover& operator=(Cover other) noexcept {
    std::swap(cubes_, other.cubes_);
    std::swap(count_, other.count_);
    std::swap(room_, other.room_);
    return *this;
  }
  ~Cover() {
    for (Cube* cube : *this) {
      std::free(cube);
    }
    std::free(cubes_);
  }
  Cover copy() const {
    Cover result;
    for (const Cube* cube : *this) {
      result.add(cube->bits);
    }
    return result;
  }

  Cube** begin() const { return cubes_; }
  Cube** end() const { return cubes_ + count_; }
  std::size_t count() const { return count_; }

  void add(Bits bits) { take(make_cube(bits)); }
  void take(Cube* cube) {
    if (count_ == room_) {
      room_ = room_ == 0 ? 4 : 2 * room_;
      cubes_ = static_cast<Cube**>(std::realloc(cubes_, room_ * sizeof(Cube*)));
      if (cubes_ == nullptr) {
        bench::die("realloc failed");
      }
    }
    cubes_[count_++] = cube;
  }
  void remove(Cube** at) {
    std::free(*at);
    std::copy(at + 1, end(), at);
    --count_;
  }
  void sort() { std::sort(begin(), end(), before); }

  template <class Condition>
  bool any(Condition condition) const {
    return std::any_of(begin(), end(), [&](const Cube* cube) { return condition(cube->bits); });
  }

 private:
  Cube** cubes_ = nullptr;
  std::size_t count_ = 0;
  std::size_t room_ = 0;
};

// The sum where `within` is true, as a function of the inputs that `within` leaves free.
Cover cofactor(const Cover& cover, Bits within, Cube* const* without = nullptr) {
  Cover result;
  for (Cube** at = cover.begin(); at != cover.end(); ++at) {
    if (at != without && intersect((*at)->bits, within)) {
      result.add((*at)->bits | (~within & g_all));
    }
  }
  return result;
}

// The halves in which one input is 0 and 1. It is the one on which most products depend, of those
// that appear in both polarities; if none does, the sum is unate.
struct Split {
  bool unate = true;
  Bits half[2];
};

Split split(const Cover& cover) {
  std::uint32_t count[kMostInputs][2]{};
  for (const Cube* cube : cover) {
    for (Bits rest = literals(cube->bits); rest != 0; rest &= rest - 1) {
      const auto at = static_cast<unsigned>(std::countr_zero(rest));
      ++count[at / 2][(cube->bits >> at & 1U) != 0 ? 0 : 1];
    }
  }
  Split result;
  std::uint64_t chosen = 0;
  std::uint32_t most = 0;
  for (std::uint64_t input = 0; input < g_inputs; ++input) {
    const bool unate = count[input][0] == 0 || count[input][1] == 0;
    const std::uint32_t both = count[input][0] + count[input][1];
    if (unate < result.unate || (unate == result.unate && both > most)) {
      result.unate = unate;
      most = both;
      chosen = input;
    }
  }
  result.half[0] = g_all & ~(Bits{2} << (2 * chosen));
  result.half[1] = g_all & ~(Bits{1} << (2 * chosen));
  return result;
}

bool has_universe(const Cover& cover) {
  return cover.any([](Bits bits) { return bits == g_all; });
}

// Whether the sum is always true. A unate one is so only if one of its products is.
bool is_tautology(const Cover& cover) {
  if (has_universe(cover)) {
    return true;
  }
  const Split parts = split(cover);
  return !parts.unate && is_tautology(cofactor(cover, parts.half[0])) &&
         is_tautology(cofactor(cover, parts.half[1]));
}

// What is in both halves loses the literal that tells them apart.
Cover merge(Cover& low, Cover& high, const Split& parts) {
  Cover result;
  low.sort();
  high.sort();
  Cube** other = high.begin();
  for (Cube* cube : low) {
    for (; other != high.end() && before(*other, cube); ++other) {
      result.add((*other)->bits & parts.half[1]);
    }
    if (other != high.end() && (*other)->bits == cube->bits) {
      result.add(cube->bits);
      ++other;
    } else {
      result.add(cube->bits & parts.half[0]);
    }
  }
  for (; other != high.end(); ++other) {
    result.add((*other)->bits & parts.half[1]);
  }
  return result;
}

Cover complement(const Cover& cover) {
  Cover result;
  if (cover.count() == 0) {
    result.add(g_all);
  } else if (cover.count() == 1) {
    // De Morgan: a product for each literal.
    const Bits bits = (*cover.begin())->bits;
    for (Bits rest = literals(bits); rest != 0; rest &= rest - 1) {
      result.add(g_all & ~(bits & (3 * (rest & (~rest + 1)))));
    }
  } else if (!has_universe(cover)) {
    const Split parts = split(cover);
    Cover low = complement(cofactor(cover, parts.half[0]));
    Cover high = complement(cofactor(cover, parts.half[1]));
    result = merge(low, high, parts);
  }
  return result;
}

// Frees each product of the literals that the complement lets it lose, and leaves out what another
// one then contains.
Cover expand(Cover cover, const Cover& off) {
  Cover result;
  cover.sort();
  for (const Cube* cube : cover) {
    if (result.any([&](Bits prime) { return contains(prime, cube->bits); })) {
      continue;
    }
    Cube* prime = make_cube(cube->bits);
    for (Bits rest = literals(cube->bits); rest != 0; rest &= rest - 1) {
      Cube* raised = make_cube(prime->bits | (3 * (rest & (~rest + 1))));
      if (!off.any([&](Bits no) { return intersect(no, raised->bits); })) {
        std::swap(prime, raised);
      }
      std::free(raised);
    }
    result.take(prime);
  }
  return result;
}

// Removes each product that the others cover together, those with many literals first.
void drop_redundant(Cover& cover) {
  cover.sort();
  for (Cube** at = cover.end(); at-- != cover.begin();) {
    if (is_tautology(cofactor(cover, (*at)->bits, at))) {
      cover.remove(at);
    }
  }
}

// Shrinks each product to the smallest one around what the others leave to it.
Cover reduced(Cover cover) {
  for (Cube** at = cover.begin(); at != cover.end(); ++at) {
    Bits around = 0;
    for (const Cube* left : complement(cofactor(cover, (*at)->bits, at))) {
      around |= left->bits;
    }
    Cube* smaller = make_cube((*at)->bits & around);
    std::free(std::exchange(*at, smaller));
  }
  return cover;
}

std::uint64_t cost(const Cover& cover) {
  std::uint64_t sum = 0;
  for (const Cube* cube : cover) {
    sum += 1'000 + static_cast<std::uint64_t>(cube->count);
  }
  return sum;
}

Cover random_cover(bench::Random& random) {
  Cover result;
  for (std::uint64_t n = 0; n < g_cubes; ++n) {
    Bits bits = g_all;
    for (std::uint64_t i = 0; i < g_literals; ++i) {
      const std::uint64_t shift = 2 * random.below(g_inputs);
      bits = (bits & ~(Bits{3} << shift)) | (Bits{1 + random.below(2)} << shift);
    }
    result.add(bits);
  }
  return result;
}

// No product of the result is true where the function is false, and together they are true wherever
// it is true.
void verify(const Cover& function, const Cover& off, const Cover& result) {
  for (const Cube* cube : result) {
    if (off.any([&](Bits no) { return intersect(no, cube->bits); })) {
      bench::die("logic: the result is true where the function is not");
    }
  }
  for (const Cube* cube : function) {
    if (!is_tautology(cofactor(result, cube->bits))) {
      bench::die("logic: the function is true where the result is not");
    }
  }
}

std::uint64_t minimise(bench::Random& random) {
  const Cover function = random_cover(random);
  const Cover off = complement(function);
  Cover best = expand(function.copy(), off);
  drop_redundant(best);
  for (;;) {
    Cover next = expand(reduced(best.copy()), off);
    drop_redundant(next);
    if (cost(next) >= cost(best)) {
      break;
    }
    best = std::move(next);
  }
  verify(function, off, best);
  std::uint64_t sum = off.count();
  for (const Cube* cube : best) {
    sum = bench::mix(sum, cube->bits);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  g_all = ~Bits{0} >> (64 - 2 * g_inputs);
  bench::Random random(g_seed);
  std::uint64_t sum = minimise(random);
  const std::uint64_t before = g_made;
  g_workload.start();
  for (std::uint64_t i = 0; i < g_rounds; ++i) {
    sum = bench::mix(sum, minimise(random));
  }
  g_workload.stop();
  g_workload.report(g_made - before, sum);
}

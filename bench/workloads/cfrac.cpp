// Factors products of two primes by the continued-fraction method (M. A. Morrison and J. Brillhart,
// "A Method of Factoring and the Factorization of F7", Mathematics of Computation, 1975) with an
// early abort (C. Pomerance, 1982). As the program `cfrac` it has been a measure of allocators
// since B. Zorn and D. Grunwald, "Empirical Measurements of Six Allocation-intensive C Programs",
// 1992: every intermediate value is a counted reference to a big integer of its own, which makes a
// great many blocks of 12 to 40 bytes that live for microseconds.
#include <cstring>

#include "cfrac_integer.hpp"

namespace {

using bench::Integer;

constexpr std::size_t kMostPrimes = 511;
constexpr std::size_t kWords = (kMostPrimes + 1) / 64;  // one bit more, for the sign
constexpr std::size_t kEarly = 15;                      // primes divided out before the abort

std::uint64_t g_digits = 17;
std::uint64_t g_primes = 160;
std::uint64_t g_rounds = 2;
std::uint64_t g_seed = 1;

constexpr bench::Parameter kParameters[] = {
    {"digits", &g_digits, 6, 18, "decimal digits of each prime factor"},
    {"primes", &g_primes, kEarly + 1, kMostPrimes, "primes in the factor base"},
    {"rounds", &g_rounds, 1, 1'000'000, "numbers that are factored"},
    {"seed", &g_seed, 0, UINT64_MAX, "seed of the numbers"},
};
bench::Workload g_workload("cfrac", "factoring with small big integers", kParameters);

std::uint64_t multiply(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % modulus);
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent, std::uint64_t modulus) {
  std::uint64_t result = 1;
  for (base %= modulus; exponent > 0; exponent >>= 1U) {
    result = (exponent & 1U) != 0 ? multiply(result, base, modulus) : result;
    base = multiply(base, base, modulus);
  }
  return result;
}

// Miller's test with the bases that decide every number below 2^64 (J. Sorenson, J. Webster 2015).
bool is_prime(std::uint64_t n) {
  if (n % 2 == 0) {
    return n == 2;
  }
  const int twos = std::countr_zero(n - 1);
  for (const std::uint64_t base : {2U, 3U, 5U, 7U, 11U, 13U, 17U, 19U, 23U, 29U, 31U, 37U}) {
    if (n <= base) {
      return n == base;
    }
    std::uint64_t x = power(base, (n - 1) >> twos, n);
    for (int i = 0; i < twos && x != 1 && x != n - 1; ++i) {
      const std::uint64_t square = multiply(x, x, n);
      x = square == 1 ? 0 : square;
    }
    if (x != 1 && x != n - 1) {
      return false;
    }
  }
  return n > 1;
}

std::uint64_t random_prime(bench::Random& random) {
  std::uint64_t least = 1;
  for (std::uint64_t i = 1; i < g_digits; ++i) {
    least *= 10;
  }
  for (;;) {
    const std::uint64_t candidate = (least + random.next() % (9 * least)) | 1U;
    if (is_prime(candidate)) {
      return candidate;
    }
  }
}

// value^2 is congruent to the product of the primes to these exponents, and to the sign. Parity and
// history are a row of the elimination: which exponents are odd once the relations of the history
// are multiplied together.
struct Relation {
  Integer value;
  std::uint8_t exponents[kMostPrimes + 1];  // The last one is the sign.
  std::uint64_t parity[kWords];
  std::uint64_t history[kWords];
};

bool bit(const std::uint64_t* words, std::size_t i) {
  return (words[i / 64] >> (i % 64) & 1U) != 0;
}
void set_bit(std::uint64_t* words, std::size_t i) { words[i / 64] |= std::uint64_t{1} << (i % 64); }

class Factoring {
 public:
  // The expansion is that of the square root of n * multiplier.
  Factoring(const Integer& n, Relation* relations, std::uint32_t multiplier)
      : n_(n), kn_(n * Integer(multiplier)), root_(square_root(kn_)), relations_(relations) {
    for (std::uint32_t p = 2; primes_ < g_primes; ++p) {
      const std::uint32_t rest = small_remainder(kn_, p);
      if (is_prime(p) && (p == 2 || rest == 0 || power(rest, (p - 1) / 2, p) == 1)) {
        prime_[primes_++] = p;
      }
    }
  }

  ~Factoring() {
    for (std::size_t row = 0; row < rows_; ++row) {
      relations_[row].value = Integer();
    }
  }

  // A factor, or 0 if the expansion's period ends before there is one.
  std::uint64_t run(std::uint64_t& steps) {
    Integer p = root_;
    Integer q_before(1);
    Integer q = kn_ - root_ * root_;
    Integer a_before(1);
    Integer a = root_ % n_;
    for (bool negative = true; !q.is(1); negative = !negative) {
      ++steps;
      Relation candidate{};
      if (is_smooth(q, candidate.exponents)) {
        candidate.exponents[kMostPrimes] = negative ? 1 : 0;
        candidate.value = a;
        if (const std::uint64_t factor = add(candidate); factor != 0) {
          return factor;
        }
      }
      const Integer quotient = (root_ + p) / q;
      Integer p_next = quotient * q - p;
      Integer q_next =
          less(p, p_next) ? q_before - quotient * (p_next - p) : q_before + quotient * (p - p_next);
      Integer a_next = (quotient * a + a_before) % n_;
      p = std::move(p_next);
      q_before = std::exchange(q, std::move(q_next));
      a_before = std::exchange(a, std::move(a_next));
    }
    return 0;
  }

 private:
  bool is_smooth(const Integer& q, std::uint8_t* exponents) const {
    Integer rest = q;
    divide_out(rest, 0, kEarly, exponents);
    if (rest.bits() > root_.bits() * 7 / 10) {
      return false;
    }
    divide_out(rest, kEarly, primes_, exponents);
    return rest.is(1);
  }

  void divide_out(Integer& rest, std::size_t first, std::size_t last,
                  std::uint8_t* exponents) const {
    while (first < last) {
      // Primes whose product has 32 bits share one long division.
      std::size_t end = first + 1;
      std::uint64_t product = prime_[first];
      for (; end < last && product * prime_[end] <= UINT32_MAX; ++end) {
        product *= prime_[end];
      }
      const std::uint32_t shared = small_remainder(rest, static_cast<std::uint32_t>(product));
      for (; first < end; ++first) {
        if (shared % prime_[first] != 0) {
          continue;
        }
        do {
          rest = small_quotient(rest, prime_[first]);
          ++exponents[first];
        } while (small_remainder(rest, prime_[first]) == 0);
      }
    }
  }

  // Eliminates with what is there already. What is left becomes a row of its own, or, if nothing is
  // left, the product of its history is a square on both sides.
  std::uint64_t add(Relation& candidate) {
    for (std::size_t i = 0; i <= kMostPrimes; ++i) {
      if (candidate.exponents[i] % 2 != 0) {
        set_bit(candidate.parity, i);
      }
    }
    for (std::size_t i = 0; i < rows_; ++i) {
      if (bit(candidate.parity, pivot_[i])) {
        for (std::size_t word = 0; word < kWords; ++word) {
          candidate.parity[word] ^= relations_[i].parity[word];
          candidate.history[word] ^= relations_[i].history[word];
        }
      }
    }
    for (std::size_t word = 0; word < kWords; ++word) {
      if (candidate.parity[word] != 0) {
        pivot_[rows_] =
            64 * word + static_cast<std::size_t>(std::countr_zero(candidate.parity[word]));
        set_bit(candidate.history, rows_);
        relations_[rows_++] = candidate;
        return 0;
      }
    }
    return try_square(candidate);
  }

  std::uint64_t try_square(const Relation& last) const {
    Integer x = last.value;
    std::uint32_t sum[kMostPrimes];
    for (std::size_t i = 0; i < primes_; ++i) {
      sum[i] = last.exponents[i];
    }
    for (std::size_t row = 0; row < rows_; ++row) {
      if (bit(last.history, row)) {
        x = x * relations_[row].value % n_;
        for (std::size_t i = 0; i < primes_; ++i) {
          sum[i] += relations_[row].exponents[i];
        }
      }
    }
    Integer y(1);
    for (std::size_t i = 0; i < primes_; ++i) {
      for (; sum[i] > 1; sum[i] -= 2) {
        y = y * Integer(prime_[i]) % n_;
      }
    }
    const Integer high = less(x, y) ? y : x;
    const Integer low = less(x, y) ? x : y;
    if (!((high * high - low * low) % n_).is(0)) {
      bench::die("cfrac: two squares are not congruent");
    }
    const Integer factor = greatest_common_divisor(n_, high - low);
    return factor.is(1) || !less(factor, n_) ? 0 : factor.low();
  }

  Integer n_;
  Integer kn_;
  Integer root_;
  Relation* relations_;
  std::size_t rows_ = 0;
  std::size_t primes_ = 0;
  std::uint32_t prime_[kMostPrimes];
  std::size_t pivot_[kMostPrimes + 1];
};

std::uint64_t factor(bench::Random& random, Relation* relations) {
  const std::uint64_t p = random_prime(random);
  std::uint64_t q = random_prime(random);
  while (q == p) {
    q = random_prime(random);
  }
  const Integer n = Integer(p) * Integer(q);
  std::uint64_t steps = 0;
  std::uint64_t found = 0;
  for (std::uint32_t multiplier = 1; found == 0; ++multiplier) {
    found = Factoring(n, relations, multiplier).run(steps);
  }
  if (found != p && found != q) {
    bench::die("cfrac: %llu is not a factor", static_cast<unsigned long long>(found));
  }
  return bench::mix(found, steps);
}

}  // namespace

int main(int argc, char** argv) {
  g_workload.parse(argc, argv);
  auto* relations = bench::map_array<Relation>(kMostPrimes + 1);
  bench::Random random(g_seed);
  std::uint64_t sum = factor(random, relations);
  const std::uint64_t before = Integer::made();
  g_workload.start();
  for (std::uint64_t i = 0; i < g_rounds; ++i) {
    sum = bench::mix(sum, factor(random, relations));
  }
  g_workload.stop();
  g_workload.report(Integer::made() - before, sum);
}

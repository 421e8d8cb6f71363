// Suggestions for misspelt words.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace allod {

// Finds the known word nearest to an unknown one. It tolerates one mistake for each three letters:
// a changed, missing or additional letter, or two transposed neighbours. It ignores case and
// allocates nothing.
class NearestWord {
 public:
  explicit NearestWord(std::string_view word) noexcept : word_{word} {}

  // `known` must outlive this object.
  void offer(std::string_view known) noexcept {
    const std::size_t most = std::max(word_.size(), known.size()) / kLettersForEach;
    const std::size_t distance = distance_to(known);
    if (distance > most || distance >= least_) return;
    least_ = distance;
    nearest_ = known;
  }
  // Empty if no word is near enough.
  [[nodiscard]] std::string_view nearest() const noexcept { return nearest_; }

 private:
  static constexpr std::size_t kLettersForEach = 3;
  static constexpr std::size_t kLongest = 32;
  static constexpr std::size_t kFar = ~std::size_t{0};

  [[nodiscard]] static char small(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  }
  // Levenshtein's distance with Damerau's transpositions of neighbours.
  [[nodiscard]] std::size_t distance_to(std::string_view known) const noexcept {
    if (word_.size() > kLongest || known.size() > kLongest) return kFar;
    std::size_t rows[3][kLongest + 1];
    for (std::size_t j = 0; j <= known.size(); ++j) rows[0][j] = j;
    for (std::size_t i = 1; i <= word_.size(); ++i) {
      std::size_t* const row = rows[i % 3];
      const std::size_t* const before = rows[(i - 1) % 3];
      row[0] = i;
      for (std::size_t j = 1; j <= known.size(); ++j) {
        const bool same = small(word_[i - 1]) == small(known[j - 1]);
        row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (same ? 0 : 1)});
        const bool may_be_turned = i > 1 && j > 1 && small(word_[i - 1]) == small(known[j - 2]) &&
                                   small(word_[i - 2]) == small(known[j - 1]);
        if (may_be_turned) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
    return rows[word_.size() % 3][known.size()];
  }

  std::string_view word_;
  std::string_view nearest_;
  std::size_t least_ = kFar;
};

}  // namespace allod

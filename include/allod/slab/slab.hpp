// Layer 4: slabs, whose blocks are bits, and remote frees. Blocks are never read or written.
#pragma once

#include <algorithm>

#include "allod/sizes/geometric.hpp"
#include "allod/slab/inbox.hpp"
#include "allod/space/space.hpp"

namespace allod::slab {

// The descriptor of a slab. Its span, the part that other threads write, and the part that the
// owner writes each begin a cache line. The owner's part ends with a "free" bit for each block. The
// first "remotely freed" bits are beside the slab's place in an inbox, so that a remote free and
// its announcement change one line. Those of further blocks follow on lines of their own.
//
// A block is free if its "free" bit is set. Blocks in a magazine count as used.
//
// A descriptor is stable metadata, and its link survives its reuse. A thread that has marked the
// last block of a slab may announce it after the slab was freed. It then announces the descriptor's
// present slab, whose owner only collects in vain.
class Slab : public space::Span {
 public:
  [[nodiscard]] static constexpr std::size_t descriptor_bytes(
      const sizes::SlabShape& shape) noexcept {
    return end_of_bits(shape.capacity);
  }

  // Makes a new or reused descriptor a slab with all blocks free.
  void start(const sizes::SlabShape& shape, ClassIndex size_class, Owner* owner) noexcept {
    first_block_ = base;
    divider_ = shape.divider;
    block_bytes_ = shape.block_bytes;
    capacity_ = shape.capacity;
    size_class_ = static_cast<std::uint16_t>(size_class);
    free_count_ = shape.capacity;
    first_word_ = 0;
    touched_ = 0;
    forget_filled();
    seen_free_ = purged_free_ = absent_free_ = kNever;
    for (std::uint32_t word = 0; word < words(); ++word) free_bits()[word] = ~Word{0};
    if (capacity_ % kWordBits != 0) free_bits()[words() - 1] = low_bits(capacity_ % kWordBits);
    set_owner(owner);
  }

  // Changes the class of a slab that is one used block, after a change of its span's size.
  void become(const sizes::SlabShape& shape, ClassIndex size_class) noexcept {
    block_bytes_ = shape.block_bytes;
    size_class_ = static_cast<std::uint16_t>(size_class);
  }

  [[nodiscard]] ClassIndex size_class() const noexcept { return size_class_; }
  [[nodiscard]] Address first_block() const noexcept { return first_block_; }
  [[nodiscard]] std::uint32_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint32_t free_count() const noexcept { return free_count_; }
  [[nodiscard]] bool is_full() const noexcept { return free_count_ == 0; }
  [[nodiscard]] bool is_empty() const noexcept { return free_count_ == capacity_; }
  [[nodiscard]] bool is_mostly_free() const noexcept { return 2 * free_count_ > capacity_; }

  // The number of the block that starts at an address in the span, or kNoBlock. Thread-safe.
  static constexpr std::uint32_t kNoBlock = ~0U;
  [[nodiscard]] ALLOD_INLINE std::uint32_t index_of(Address address) const noexcept {
    const auto [index, is_start] = divider_.divide(address - first_block_);
    const bool is_block = is_start && index < capacity_;
    return __builtin_expect(is_block, 1) ? static_cast<std::uint32_t>(index) : kNoBlock;
  }
  // The number of the block that holds `address`; at least `capacity()` in the tail.
  [[nodiscard]] std::uint32_t index_around(Address address) const noexcept {
    return static_cast<std::uint32_t>(divider_.divide(address - base).quotient);
  }
  [[nodiscard]] void* block_at(std::uint32_t index) const noexcept {
    return reinterpret_cast<void*>(base + std::size_t{index} * block_bytes_);
  }
  [[nodiscard]] bool is_marked_free(std::uint32_t index) const noexcept {
    return (free_bits()[index / kWordBits] & bit(index % kWordBits)) != 0;
  }

  // Takes the `count` free blocks with the lowest addresses, and writes them to out[0 .. count),
  // the lowest one last, in a stack's order. `count` is at least 1 and at most free_count().
  ALLOD_HOT void take(std::uint32_t count, void** out) noexcept {
    std::uint32_t word = first_word_;
    void** to = out + count;
    const Word first_bits = free_bits()[0];
    const std::size_t step = block_bytes_;
    note_taken(count);
    for (;; ++word) {
      Word bits = free_bits()[word];
      if (bits == 0) continue;
      Address const start = base + std::size_t{word} * kWordBits * step;
      if (bits == ~Word{0} && to - out >= std::ptrdiff_t{kWordBits}) {
        for (Address block = start; block != start + kWordBits * step; block += step) {
          *--to = reinterpret_cast<void*>(block);
        }
        bits = 0;
      } else {
        do {
          *--to = reinterpret_cast<void*>(start + lowest_bit(bits) * step);
          bits &= bits - 1;
        } while (bits != 0 && to != out);
      }
      free_bits()[word] = bits;
      if (to == out) break;
    }
    first_word_ = word;
    if (words() == 1) touched_ |= first_bits & ~free_bits()[0];
  }
  // Whether the owner has allocated half of its blocks or more. True for many blocks, where this is
  // unknown.
  [[nodiscard]] bool was_mostly_used() const noexcept {
    return capacity_ > kWordBits || 2 * count_bits(touched_) >= capacity_;
  }
  // Takes one block. free_count() must not be 0. Sets `*virgin` if the block is known to be never
  // allocated before.
  [[nodiscard]] ALLOD_INLINE void* take_one(bool* virgin) noexcept {
    const Word bits = free_bits()[find_free_word()];
    return take_from_first_word(bits & (bits - 1), lowest_bit(bits), virgin);
  }
  // The same among `group` neighbours, a divisor of kWordBits, which include the first free block:
  // the first free one from the `choice`th on, or else the first.
  [[nodiscard]] ALLOD_INLINE void* take_one_of(unsigned group, unsigned choice,
                                               bool* virgin) noexcept {
    const Word bits = free_bits()[find_free_word()];
    const unsigned start = lowest_bit(bits) / group * group;
    const Word in_group = bits >> start & (bit(group) - 1);
    const Word behind = in_group >> choice << choice;
    const unsigned chosen = start + lowest_bit(behind != 0 ? behind : in_group);
    return take_from_first_word(bits & ~bit(chosen), chosen, virgin);
  }
  // As take_one(), for a slab of more than kWordBits blocks, where `virgin` is unknown.
  [[nodiscard]] ALLOD_INLINE void* take_one_of_many() noexcept {
    std::uint32_t word = first_word_;
    Word bits = free_bits()[word];
    if (__builtin_expect(bits == 0, 0)) {
      while ((bits = free_bits()[++word]) == 0) {
      }
      first_word_ = word;
    }
    free_bits()[word] = bits & (bits - 1);
    note_taken(1);
    void* const block = block_at(word * kWordBits + lowest_bit(bits));
    if (block == nullptr) __builtin_unreachable();
    return block;
  }
  // Any free block, chosen by a random word. The slab must not be full.
  [[nodiscard]] void* take_at_random(std::uint64_t random) noexcept {
    const std::uint32_t choice = words() - first_word_;
    std::uint32_t word = first_word_ + static_cast<std::uint32_t>((random >> 32) * choice >> 32);
    while (free_bits()[word] == 0) word = word + 1 == words() ? first_word_ : word + 1;
    const Word bits = free_bits()[word];
    const unsigned chosen = bit_from(bits, random % kWordBits);
    free_bits()[word] = bits & ~bit(chosen);
    note_taken(1);
    if (capacity_ <= kWordBits) touched_ |= bit(chosen);
    return block_at(word * kWordBits + chosen);
  }
  // Whether a block of this slab, which is one slice, begins there and is in use for the owner.
  [[nodiscard]] ALLOD_INLINE bool has_in_use_in_slice(const void* block) const noexcept {
    const auto [index, is_start] = divider_.divide(address_of(block) % kSliceBytes);
    if (__builtin_expect(!is_start || index >= capacity_, 0)) return false;
    return (free_bits()[index / kWordBits] >> (index % kWordBits) & 1) == 0;
  }
  // Marks a block as free. False if it is not a used block of this slab.
  [[nodiscard]] ALLOD_INLINE bool give_one(const void* block) noexcept {
    const std::uint32_t index = index_of(address_of(block));
    if (__builtin_expect(index == kNoBlock, 0)) return false;
    const std::uint32_t word = index / kWordBits;
    const Word bits = free_bits()[word];
    const Word mask = bit(index % kWordBits);
    if (__builtin_expect((bits & mask) != 0, 0)) return false;
    free_bits()[word] = bits | mask;
    first_word_ = word < first_word_ ? word : first_word_;
    ++free_count_;
    return true;
  }
  // Marks blocks as free, up to the first that is not a used block of this slab. Returns their
  // number.
  [[nodiscard]] std::uint32_t give(void* const* blocks, std::uint32_t count) noexcept {
    const Address start = base;
    const Address bytes = Address{capacity_} * block_bytes_;
    const Divider divider = divider_;
    // The current word stays in a register: otherwise each block of a word would wait for the store
    // of the one before.
    std::uint32_t word = first_word_;
    Word bits = free_bits()[word];
    std::uint32_t least = word;
    void* const* at = blocks;
    for (void* const* const end = blocks + count; at != end; ++at) {
      const Address offset = address_of(*at) - start;
      if (offset >= bytes) break;
      const auto [index, is_start] = divider.divide(offset);
      if (!is_start) break;
      if (const auto other = static_cast<std::uint32_t>(index / kWordBits); other != word) {
        free_bits()[word] = bits;
        word = other;
        bits = free_bits()[word];
        least = word < least ? word : least;
      }
      const Word mask = Word{1} << (index % kWordBits);
      if (__builtin_expect((bits & mask) != 0, 0)) break;
      bits |= mask;
    }
    const auto given = static_cast<std::uint32_t>(at - blocks);
    free_bits()[word] = bits;
    first_word_ = least;
    free_count_ += given;
    return given;
  }

  // --- pages of blocks of several pages --------------------------------------------

  // Whether the block's pages count as present: this was found, or need not be asked again, and no
  // page of the slab was purged since. For slabs of up to 64 blocks. Thread-safe.
  [[nodiscard]] ALLOD_INLINE bool is_filled(std::uint32_t index) const noexcept {
    return (filled_.load(std::memory_order_relaxed) >> (index % kWordBits) & 1) != 0;
  }
  void note_filled(std::uint32_t index) const noexcept {
    if (capacity_ <= kWordBits) filled_.fetch_or(bit(index), std::memory_order_relaxed);
  }
  void forget_filled() noexcept { filled_.store(0, std::memory_order_relaxed); }

  // --- for other threads ----------------------------------------------------------

  [[nodiscard]] Owner* owner() const noexcept { return owner_.load(); }
  void set_owner(Owner* owner) noexcept { owner_.store(owner); }
  // Whether a thread has pushed the slab into an inbox, or is about to.
  [[nodiscard]] bool is_announced() const noexcept { return link_.load() != 0; }
  // In the child of a fork, where that thread may have ended.
  void forget_announcement() noexcept { link_.store(0); }

  // Marks blocks as remotely freed: those of `mask` in word `word`. Returns those that were marked
  // already, by double frees. The caller must announce() afterwards. Thread-safe.
  [[nodiscard]] Word give_remotely(std::uint32_t word, Word mask) noexcept {
    return remote_word(word).fetch_or(mask) & mask;
  }
  // Makes sure that the owner will collect remote frees. Thread-safe.
  ALLOD_HOT void announce() noexcept;

  // Makes remotely freed blocks free, and returns their number. Calls `on_double` with the number
  // of each block that was free already. Owner only.
  template <class OnDouble>
  ALLOD_HOT std::uint32_t collect(OnDouble&& on_double) noexcept;
  // Removes the remote marks, and visits each block's number. The blocks stay in use. Owner only.
  template <class Visit>
  void take_marks(Visit&& visit) noexcept;
  // The remote frees that are not collected yet. Thread-safe, approximate.
  [[nodiscard]] std::uint32_t remote_count() const noexcept;
  [[nodiscard]] bool is_marked_remote(std::uint32_t index) const noexcept {
    const Word bits = remote_word(index / kWordBits).load(std::memory_order_relaxed);
    return (bits & bit(index % kWordBits)) != 0;
  }

  // Whether the block is in use, for slabs. From any thread.
  [[nodiscard]] ALLOD_INLINE bool is_in_use(std::uint32_t index) const noexcept {
    const std::uint32_t word = index / kWordBits;
    const Word free = free_word(word) | remote_word(word).load(std::memory_order_relaxed);
    return (free & bit(index % kWordBits)) == 0;
  }
  // The same for each block of a word. Owner only.
  [[nodiscard]] Word used_in_word(std::uint32_t word) const noexcept {
    const std::uint32_t rest = capacity_ - word * kWordBits;
    const Word all = rest < kWordBits ? low_bits(rest) : ~Word{0};
    return all & ~free_bits()[word] & ~remote_word(word).load(std::memory_order_relaxed);
  }
  // Before a slab with blocks in use is freed: its descriptor's next life begins without marks.
  void forget_remote() noexcept;

  // The part of a larger descriptor behind the bits, `offset` bytes from its start; see
  // slab/block_state.hpp.
  void set_behind_bits(std::size_t offset) noexcept {
    behind_bits_ = static_cast<std::uint32_t>(offset);
  }
  [[nodiscard]] unsigned char* behind_bits() const noexcept {
    return reinterpret_cast<unsigned char*>(const_cast<Slab*>(this)) + behind_bits_;
  }

  // --- pages without blocks in use; while the owner is at rest -------------------

  enum class Rest : std::uint8_t {
    settled,  // nothing is left to purge
    moving,   // blocks came or went since the last look
    resting,  // none did
  };
  // Whether nothing is left to purge. Owner at rest.
  [[nodiscard]] bool is_settled() const noexcept {
    return is_full() || purged_free_ == free_count_;
  }
  // Owner at rest. Compares with the last look.
  [[nodiscard]] Rest look_for_rest() noexcept {
    if (is_settled()) return Rest::settled;
    if (seen_free_ == free_count_) return Rest::resting;
    seen_free_ = free_count_;
    return Rest::moving;
  }
  // Calls `purge(from, to)` for each run of whole pages without blocks in use, until it returns
  // false; the result is then false. Pages wholly behind the last block stay as they are.
  template <class Purge>
  [[nodiscard]] bool purge_free_pages(std::size_t page, Purge&& purge) noexcept {
    forget_filled();
    absent_free_ = 0;
    const bool is_done =
        for_each_free_run(page, [&](std::uint32_t, std::uint32_t, Address from,
                                    Address to) noexcept { return from >= to || purge(from, to); });
    if (is_done) purged_free_ = free_count_;
    return is_done;
  }

  // --- free blocks on present pages; owner only ----------------------------------

  // Whether pages were purged since the slab was full. Then free blocks that share each of their
  // pages with a block in use are on present pages.
  [[nodiscard]] bool has_holes() const noexcept { return absent_free_ != kNever; }
  // As take(), of up to `count` such blocks, in a slab that has holes. Returns their number.
  [[nodiscard]] std::uint32_t take_present(std::uint32_t count, std::size_t page,
                                           void** out) noexcept {
    if (free_count_ <= absent_free_) return 0;
    void** end = out;
    const std::uint32_t taken = visit_present(count, page, [&](std::uint32_t index) noexcept {
      *end++ = block_at(index);
      set_used(index, index + 1);
      if (capacity_ <= kWordBits) touched_ |= bit(index);
    });
    std::reverse(out, end);
    absent_free_ = taken < count ? free_count_ : 0;
    return taken;
  }
  // After other blocks were taken from a slab that has holes: their pages are present now.
  void note_holes_used() noexcept { absent_free_ = has_holes() ? 0 : kNever; }
  // All pages are present again, as the slab is full.
  void forget_holes() noexcept { absent_free_ = kNever; }

  // A recount, for checks.
  [[nodiscard]] std::uint32_t count_free_bits() const noexcept {
    std::uint32_t count = 0;
    for (std::uint32_t word = 0; word < words(); ++word) count += count_bits(free_bits()[word]);
    return count;
  }

 protected:
  // Marks blocks [first, end) used or free, whatever they were.
  void set_used(std::uint32_t first, std::uint32_t end) noexcept {
    for_each_part(first, end, [&](std::uint32_t word, Word mask) noexcept {
      relaxed(free_bits()[word], free_bits()[word] & ~mask);
    });
    note_taken(end - first);
  }
  void set_free(std::uint32_t first, std::uint32_t end) noexcept {
    for_each_part(first, end, [&](std::uint32_t word, Word mask) noexcept {
      relaxed(free_bits()[word], free_bits()[word] | mask);
    });
    free_count_ += end - first;
    first_word_ = first / kWordBits < first_word_ ? first / kWordBits : first_word_;
  }
  [[nodiscard]] Word free_word(std::uint32_t word) const noexcept {
    return __atomic_load_n(&free_bits()[word], __ATOMIC_RELAXED);
  }
  [[nodiscard]] Word take_remote_word(std::uint32_t word) noexcept {
    return remote_word(word).load() == 0 ? 0 : remote_word(word).exchange(0);
  }
  // For words that other threads may be reading.
  static void relaxed(Word& word, Word value) noexcept {
    __atomic_store_n(&word, value, __ATOMIC_RELAXED);
  }
  [[nodiscard]] std::uint32_t first_word() const noexcept { return first_word_; }
  void set_first_word(std::uint32_t word) noexcept { first_word_ = word; }
  [[nodiscard]] std::uint32_t words() const noexcept { return words_for(capacity_); }

 private:
  friend class Inbox;

  // A free block is used again, so its pages may be present.
  ALLOD_INLINE void note_taken(std::uint32_t count) noexcept {
    free_count_ -= count;
    seen_free_ = purged_free_ = kNever;
  }
  // Calls `visit(begin, end, from, to)` for each run of free blocks, with the whole pages in it,
  // until it returns false; the result is then false.
  template <class Visit>
  bool for_each_free_run(std::size_t page, Visit&& visit) const noexcept {
    std::uint32_t begin = next_with(first_word_ * kWordBits, true);
    while (begin < capacity_) {
      const std::uint32_t end = next_with(begin, false);
      const Address from = align_up(address_of(block_at(begin)), page);
      // The last page of the last block holds nothing else.
      const Address last = address_of(block_at(end));
      const Address to = end == capacity_ ? align_up(last, page) : align_down(last, page);
      if (!visit(begin, end, from, to)) return false;
      begin = next_with(end, true);
    }
    return true;
  }
  // Visits up to `count` free blocks outside of their runs' whole pages. Returns how many.
  template <class Visit>
  std::uint32_t visit_present(std::uint32_t count, std::size_t page, Visit&& visit) const noexcept {
    std::uint32_t left = count;
    for_each_free_run(
        page, [&](std::uint32_t begin, std::uint32_t end, Address from, Address to) noexcept {
          // Blocks [before, behind) reach into the whole pages.
          const bool is_any = from < to;
          const std::uint32_t before = is_any ? index_around(from) : end;
          const std::uint32_t behind = is_any ? index_around(to - 1) + 1 : end;
          for (; begin < before && left > 0; ++begin, --left) visit(begin);
          for (std::uint32_t i = behind; i < end && left > 0; ++i, --left) visit(i);
          return left > 0;
        });
    return count - left;
  }
  // The first word with a free block, which must exist.
  [[nodiscard]] ALLOD_INLINE std::uint32_t find_free_word() noexcept {
    std::uint32_t word = first_word_;
    while (free_bits()[word] == 0) ++word;
    first_word_ = word;
    return word;
  }
  // Takes a block from the first word, whose remaining bits are `rest`.
  [[nodiscard]] ALLOD_INLINE void* take_from_first_word(Word rest, unsigned index,
                                                        bool* virgin) noexcept {
    const std::uint32_t word = first_word_;
    free_bits()[word] = rest;
    note_taken(1);
    const bool known = capacity_ <= kWordBits;
    *virgin = known && (touched_ & bit(index)) == 0;
    if (known) touched_ |= bit(index);
    return block_at(word * kWordBits + index);
  }

  template <class Visit>
  static void for_each_part(std::uint32_t first, std::uint32_t end, Visit&& visit) noexcept {
    while (first < end) {
      const std::uint32_t word = first / kWordBits;
      const std::uint32_t next = (word + 1) * kWordBits < end ? (word + 1) * kWordBits : end;
      visit(word, low_bits(next - first) << (first % kWordBits));
      first = next;
    }
  }
  static constexpr std::size_t remote_bits_offset(std::uint32_t capacity) noexcept {
    return align_up(sizeof(Slab) + words_for(capacity) * sizeof(Word), kCacheLine);
  }
  // The first block from `index` on that is free, or not free; capacity() if there is none.
  [[nodiscard]] std::uint32_t next_with(std::uint32_t index, bool free) const noexcept {
    for (; index < capacity_; index = (index / kWordBits + 1) * kWordBits) {
      const Word bits = free ? free_bits()[index / kWordBits] : ~free_bits()[index / kWordBits];
      const Word rest = bits & ~low_bits(index % kWordBits);
      if (rest == 0) continue;
      const std::uint32_t found = index / kWordBits * kWordBits + lowest_bit(rest);
      return found < capacity_ ? found : capacity_;
    }
    return capacity_;
  }
  static constexpr std::size_t end_of_bits(std::uint32_t capacity) noexcept {
    const std::uint32_t all = words_for(capacity);
    const std::uint32_t further = all > kFirstWords ? all - kFirstWords : 0;
    return remote_bits_offset(capacity) + further * sizeof(Word);
  }
  [[nodiscard]] Word* free_bits() const noexcept {
    return reinterpret_cast<Word*>(const_cast<Slab*>(this) + 1);
  }
  [[nodiscard]] ALLOD_INLINE std::atomic<Word>& remote_word(std::uint32_t word) const noexcept {
    if (word < kFirstWords) return remote_[word];
    auto* const further = reinterpret_cast<std::atomic<Word>*>(
        reinterpret_cast<unsigned char*>(const_cast<Slab*>(this)) + remote_bits_offset(capacity_));
    return further[word - kFirstWords];
  }
  // A slab's link while it is announced, and the slab below that it names. 0: not announced.
  static Address link_to(const Slab* below) noexcept { return address_of(below) | 1; }
  static Slab* below(Address link) noexcept { return reinterpret_cast<Slab*>(link & ~Address{1}); }
  // False if the slab is announced already.
  [[nodiscard]] bool claim() noexcept;

  // Read by every thread.
  alignas(kCacheLine) Address first_block_;  // `base`; the owner changes the members beside that
  Divider divider_;
  std::uint32_t block_bytes_;
  std::uint16_t capacity_;
  std::uint16_t size_class_;
  std::atomic<Owner*> owner_;
  std::uint32_t behind_bits_;  // bytes from the descriptor's start
  mutable std::atomic<Word> filled_;
  // Written by other threads.
  static constexpr std::uint32_t kFirstWords = kCacheLine / sizeof(Word) - 1;
  alignas(kCacheLine) std::atomic<Address> link_;
  mutable std::atomic<Word> remote_[kFirstWords];
  // Written by the owner.
  alignas(kCacheLine) std::uint32_t free_count_;
  std::uint32_t first_word_;  // no free block lies in a word before this one
  Word touched_;              // of up to 64 blocks: those ever allocated
  // Written while the owner is at rest: free_count() at the last look, and after the last complete
  // purge. kNever as soon as a block is taken.
  static constexpr std::uint32_t kNever = ~0U;
  std::uint32_t seen_free_;
  std::uint32_t purged_free_;
  // As many free blocks are on absent pages, or all if there are fewer; kNever without holes.
  std::uint32_t absent_free_;
};

[[nodiscard]] inline Slab* as_slab(space::Span* span) noexcept { return static_cast<Slab*>(span); }

}  // namespace allod::slab

#include "allod/slab/remote_frees.hpp"

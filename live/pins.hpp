// Which call stacks pin slabs that are nearly empty.
#pragma once

#include "figures.hpp"
#include "stacks.hpp"

namespace allod::live {

// What the blocks of a stack keep from being given back.
struct PinSum {
  double pinned = 0;    // bytes
  double variance = 0;  // of these
  double bytes = 0;     // of its blocks in sparse slabs
  double blocks = 0;
};

// A slab is sparse if at most a quarter of its blocks are in use. Each of these pins an equal part
// of the slab's free bytes that are in memory. How much is free is exact; whose blocks they are is
// an estimate, except in the slabs of samples.
class Pins {
 public:
  // False if memory is exhausted.
  [[nodiscard]] bool find(Figures& figures, const Stacks& stacks) noexcept;
  // By the index in Stacks::all().
  [[nodiscard]] const PinSum& of_stack(std::size_t index) const noexcept { return sums_[index]; }
  // Free bytes in all sparse slabs; the stacks' sum is not more.
  [[nodiscard]] std::uint64_t free_bytes() const noexcept { return free_; }

 private:
  struct Sparse {
    std::uintptr_t address;
    std::size_t bytes;
    std::uint32_t block_bytes;
    std::uint32_t used;  // blocks
    std::uint64_t free;  // bytes in memory; 0: the slab is not sparse
    bool is_of_samples;
  };
  struct Class {
    std::uint32_t block_bytes;
    std::uint64_t free;  // in sparse slabs without samples
    std::uint64_t slab_bytes;
    double claimed;
    double left;
  };
  struct Claim {
    double blocks;
    double bytes;  // pinned
  };
  [[nodiscard]] bool list_slabs(Figures& figures) noexcept;
  void mark_samples() noexcept;
  [[nodiscard]] bool list_classes() noexcept;
  void add_claims() noexcept;
  void share_out(const Stacks& stacks) noexcept;
  [[nodiscard]] Sparse* slab_at(const void* address) noexcept;
  [[nodiscard]] Class* class_of(std::size_t block_bytes) noexcept;
  [[nodiscard]] Claim claim_of(const allod_profile_block_t& sample, const Class& of) noexcept;

  Table<Sparse> slabs_;   // all of them, by address
  Table<Class> classes_;  // by size
  Table<PinSum> sums_;
  std::uint64_t free_ = 0;
};

}  // namespace allod::live

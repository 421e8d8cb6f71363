#include "pins.hpp"

#include <algorithm>

namespace allod::live {

bool Pins::find(Figures& figures, const Stacks& stacks) noexcept {
  if (!figures.gather_spans() || !list_slabs(figures)) return false;
  mark_samples();
  if (!list_classes() || !sums_.set_size(stacks.all().size())) return false;
  add_claims();
  share_out(stacks);
  return true;
}

bool Pins::list_slabs(Figures& figures) noexcept {
  for (std::size_t i = 0; i < figures.spans.size(); ++i) {
    const allod_span_t& span = figures.spans[i];
    if (span.kind != ALLOD_SPAN_SLAB) continue;
    const std::uint32_t used = span.blocks - span.free;
    std::uint64_t free = 0;
    if (used != 0 && used <= span.blocks / 4) {
      const std::uint64_t in_memory =
          above(figures.resident[i], std::uint64_t{used} * span.block_bytes);
      free = std::min(std::uint64_t{span.free} * span.block_bytes, in_memory);
    }
    free_ += free;
    if (!slabs_.push({span.address, span.bytes, span.block_bytes, used, free, false})) return false;
  }
  std::sort(slabs_.begin(), slabs_.end(),
            [](const Sparse& a, const Sparse& b) { return a.address < b.address; });
  return true;
}

void Pins::mark_samples() noexcept {
  const auto visit = [](const allod_profile_block_t* sample, void* context) {
    if (Sparse* const slab = static_cast<Pins*>(context)->slab_at(sample->address)) {
      slab->is_of_samples = true;
    }
    return 0;
  };
  allod_profile_visit_blocks(visit, this);
}

bool Pins::list_classes() noexcept {
  for (const Sparse& slab : slabs_) {
    if (slab.is_of_samples) continue;
    Class* row = class_of(slab.block_bytes);
    if (row == nullptr) {
      if (!classes_.push({slab.block_bytes, 0, slab.bytes, 0, 0})) return false;
      std::sort(classes_.begin(), classes_.end(),
                [](const Class& a, const Class& b) { return a.block_bytes < b.block_bytes; });
      row = class_of(slab.block_bytes);
    }
    row->free += slab.free;
  }
  return true;
}

Pins::Sparse* Pins::slab_at(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  Sparse* slab =
      std::upper_bound(slabs_.begin(), slabs_.end(), at,
                       [](std::uintptr_t key, const Sparse& row) { return key < row.address; });
  if (slab == slabs_.begin()) return nullptr;
  --slab;
  return at < slab->address + slab->bytes ? slab : nullptr;
}

Pins::Class* Pins::class_of(std::size_t block_bytes) noexcept {
  Class* const row =
      std::lower_bound(classes_.begin(), classes_.end(), block_bytes,
                       [](const Class& it, std::size_t size) { return it.block_bytes < size; });
  return row != classes_.end() && row->block_bytes == block_bytes ? row : nullptr;
}

// What the blocks that a sample stands for pin in slabs of the program, beside the sample itself:
// they lie in the slab of its neighbour. If that is no more, each of them holds a slab alone: it
// would be there still if the sample were in it.
Pins::Claim Pins::claim_of(const allod_profile_block_t& sample, const Class& of) noexcept {
  const double blocks = static_cast<double>(sample.count_x256) / 256 - 1;
  if (blocks <= 0 || sample.neighbour == nullptr) return {0, 0};
  const Sparse* const slab = slab_at(sample.neighbour);
  if (slab == nullptr || slab->block_bytes != of.block_bytes) {
    return {blocks, blocks * static_cast<double>(of.slab_bytes - of.block_bytes)};
  }
  if (slab->free == 0) return {0, 0};
  return {blocks, blocks * static_cast<double>(slab->free) / slab->used};
}

void Pins::add_claims() noexcept {
  const auto visit = [](const allod_profile_block_t* sample, void* context) {
    auto& self = *static_cast<Pins*>(context);
    if (Class* const of = self.class_of(sample->bytes)) {
      of->claimed += self.claim_of(*sample, *of).bytes;
    }
    return 0;
  };
  allod_profile_visit_blocks(visit, this);
  for (Class& of : classes_) of.left = static_cast<double>(of.free);
}

// Claims beyond what is free are cut in proportion.
void Pins::share_out(const Stacks& stacks) noexcept {
  struct Walk {
    Pins& self;
    const Stacks& stacks;
  } walk{*this, stacks};
  const auto visit = [](const allod_profile_block_t* sample, void* context) {
    auto& [self, all] = *static_cast<Walk*>(context);
    const StackCopy* const stack = all.find(sample->stack);
    if (stack == nullptr) return 0;
    PinSum& sum = self.sums_[static_cast<std::size_t>(stack - all.all().begin())];
    const Sparse* const own = self.slab_at(sample->address);
    if (own != nullptr && own->free != 0) {
      sum.pinned += static_cast<double>(own->free) / own->used;
      sum.bytes += static_cast<double>(sample->bytes);
      sum.blocks += 1;
    }
    Class* const of = self.class_of(sample->bytes);
    if (of == nullptr || of->free == 0) return 0;
    const Claim claim = self.claim_of(*sample, *of);
    const double scale = std::min(1.0, static_cast<double>(of->free) / std::max(1.0, of->claimed));
    // Samples may have come since the claims were added up.
    const double pinned = std::min(claim.bytes * scale, of->left);
    if (pinned <= 0) return 0;
    of->left -= pinned;
    sum.pinned += pinned;
    sum.variance += pinned * pinned;
    sum.bytes += claim.blocks * static_cast<double>(sample->bytes);
    sum.blocks += claim.blocks;
    return 0;
  };
  allod_profile_visit_blocks(visit, &walk);
}

}  // namespace allod::live

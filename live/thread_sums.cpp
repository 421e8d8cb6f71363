#include "thread_sums.hpp"

#include <algorithm>

namespace allod::live {

bool ThreadSums::gather() noexcept {
  struct Walk {
    ThreadSums& sums;
    std::size_t most = 4096;  // rows, before they are merged
    bool is_whole = true;
  } walk{*this};
  all_.clear();
  const auto visit = [](const allod_profile_block_t* block, void* context) {
    auto& [sums, most, is_whole] = *static_cast<Walk*>(context);
    is_whole = sums.all_.push(
        {block->stack, block->thread, block->count_x256, block->bytes * block->count_x256});
    if (sums.all_.size() >= most) {
      sums.merge();
      most = std::max(most, 2 * sums.all_.size());
    }
    return is_whole ? 0 : 1;
  };
  allod_profile_visit_blocks(visit, &walk);
  merge();
  return walk.is_whole;
}

const ThreadSum* ThreadSums::first_of(std::uint64_t stack) const noexcept {
  return std::lower_bound(
      all_.begin(), all_.end(), stack,
      [](const ThreadSum& row, std::uint64_t wanted) { return row.stack < wanted; });
}

void ThreadSums::merge() noexcept {
  std::sort(all_.begin(), all_.end(), [](const ThreadSum& a, const ThreadSum& b) {
    return a.stack != b.stack ? a.stack < b.stack : a.thread < b.thread;
  });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const ThreadSum row = all_[i];
    if (kept != 0 && all_[kept - 1].stack == row.stack && all_[kept - 1].thread == row.thread) {
      all_[kept - 1].blocks += row.blocks;
      all_[kept - 1].bytes += row.bytes;
    } else {
      all_[kept++] = row;
    }
  }
  static_cast<void>(all_.set_size(kept));
}

}  // namespace allod::live

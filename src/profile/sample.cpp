#include "profile/sample.hpp"

namespace allod::profile {

namespace {

template <class T>
T* allocate_some(std::size_t count) noexcept {
  return static_cast<T*>(engine().space().allocate_metadata(count * sizeof(T)));
}

}  // namespace

// Blocks of a page have lists side by side, from a random one on: they come and go together.
std::size_t SampleTable::list_of(Address block) const noexcept {
  constexpr unsigned kPageShift = 12;
  constexpr unsigned kBlockShift = 4;
  const auto first = static_cast<std::size_t>((block >> kPageShift) * kMix >> shift_);
  const std::size_t within = (block & ((Address{1} << kPageShift) - 1)) >> kBlockShift;
  return (first + within) & (list_count() - 1);
}

// False if memory is exhausted and there are no lists.
bool SampleTable::make_room() noexcept {
  if (lists_ != nullptr && entries_ < kMostInList * list_count()) return true;
  constexpr unsigned kFewest = 10;
  SampleTable larger;
  larger.shift_ = lists_ == nullptr ? 64 - kFewest : shift_ - 1;
  const std::size_t count = std::size_t{1} << (64 - larger.shift_);
  larger.lists_ = allocate_some<std::uint32_t>(count);
  if (larger.lists_ == nullptr) return lists_ != nullptr;
  for (std::uint32_t number = 1; number <= last_; ++number) {
    Sample& sample = (*this)[number];
    if (sample.block == 0) continue;
    std::uint32_t& list = larger.lists_[larger.list_of(sample.at())];
    sample.next = list;
    list = number;
  }
  if (lists_ != nullptr) {
    engine().space().metadata().free(lists_, list_count() * sizeof *lists_);
  }
  lists_ = larger.lists_;
  shift_ = larger.shift_;
  return true;
}

// The number of a free record; 0: memory is exhausted.
std::uint32_t SampleTable::take() noexcept {
  if (spare_ != 0) {
    const std::uint32_t number = spare_;
    spare_ = (*this)[number].next;
    return number;
  }
  if (last_ == kMostSamples) return 0;
  const std::uint64_t place = std::uint64_t{last_} + kFirst;
  const auto chunk = static_cast<unsigned>(std::bit_width(place)) - 1;
  Sample*& samples = chunks_[chunk - kFirstShift];
  if (samples == nullptr) samples = allocate_some<Sample>(std::size_t{1} << chunk);
  return samples == nullptr ? 0 : ++last_;
}

Sample* SampleTable::add(Address block) noexcept {
  if (!make_room()) return nullptr;
  const std::uint32_t number = take();
  if (number == 0) return nullptr;
  Sample& sample = (*this)[number];
  std::uint32_t& list = lists_[list_of(block)];
  sample.block = block & kAddressMask;
  sample.next = list;
  list = number;
  ++entries_;
  return &sample;
}

Sample* SampleTable::remove(Address block) noexcept {
  if (lists_ == nullptr) return nullptr;
  std::uint32_t* const list = &lists_[list_of(block)];
  Sample* before = nullptr;
  for (std::uint32_t number = *list; number != 0;) {
    Sample& sample = (*this)[number];
    const std::uint32_t next = sample.next;
    if (sample.block == block) {
      if (before == nullptr) {
        *list = next;
      } else {
        before->next = next;
      }
      sample.block = 0;
      sample.next = spare_;
      spare_ = number;
      --entries_;
      return &sample;
    }
    before = &sample;
    number = next;
  }
  return nullptr;
}

}  // namespace allod::profile

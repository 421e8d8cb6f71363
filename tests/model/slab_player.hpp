// Plays any sequence of calls on a slab, its owners' and other threads', against a model.
#pragma once

#include <set>

#include "../unit/world.hpp"

namespace allod::test {

// One descriptor that is used for one slab after the other, by two owners and by threads that free.
// `Choices` as for SpacePlayer. A broken promise is a failed check.
template <class Choices>
class SlabPlayer {
 public:
  using Sizes = sizes::Geometric<std::size_t{1} << 20>;

  explicit SlabPlayer(Choices& choices) : choices_{choices} {
    // Classes with as large a descriptor can follow each other in it.
    const auto first = static_cast<ClassIndex>(choices_.below(Sizes::kCount));
    bytes_ = bytes_for(first);
    memory_ = ::operator new(bytes_, std::align_val_t{kCacheLine});
    std::memset(memory_, 0, bytes_);
    start_slab(first);
  }
  ~SlabPlayer() { ::operator delete(memory_, std::align_val_t{kCacheLine}); }
  SlabPlayer(const SlabPlayer&) = delete;
  SlabPlayer& operator=(const SlabPlayer&) = delete;

  void step() {
    switch (choices_.below(10)) {
      case 0:
      case 1:
        return take();
      case 2:
        return give();
      case 3:
      case 4:
      case 5:
        return give_remotely();
      case 6:
        return slab().announce();
      case 7:
        return look_into_inbox();
      case 8:
        return change_hands();
      default:
        if (free_.size() == slab().capacity()) start_slab(some_class());
    }
  }
  void check() {
    always_check(slab().free_count() == free_.size(), "free blocks are counted wrongly");
    always_check(slab().count_free_bits() == free_.size(), "free bits are wrong");
    for (std::uint32_t i = 0; i < slab().capacity(); ++i) {
      always_check(slab().is_marked_free(i) == free_.contains(i), "a free bit is wrong");
      always_check(slab().is_marked_remote(i) == remote_.contains(i), "a remote bit is wrong");
    }
    always_check(slab().remote_count() == remote_.size(), "remote bits are counted wrongly");
    const bool in_one = inbox_of_slab() != nullptr;
    always_check(slab().is_announced() == in_one, "announced, and in no inbox");
    // Who has an owner that cannot see its marks has lost them.
    always_check(remote_.empty() || owner_ == nullptr || in_one || !told_,
                 "a mark that was announced is lost");
  }
  // After the last owner has looked, everything that was freed has come home.
  void finish() {
    check();
    if (owner_ == nullptr) change_hands();
    slab().announce();
    told_ = true;
    for (slab::Owner& owner : owners_) look_into(owner);
    look_into(*owner_);
    check();
    always_check(remote_.empty(), "a block has not come home");
  }

 private:
  static std::size_t bytes_for(ClassIndex c) {
    return align_up(slab::Slab::descriptor_bytes(Sizes::shape_of(c)), kCacheLine);
  }
  slab::Slab& slab() { return *static_cast<slab::Slab*>(memory_); }

  ClassIndex some_class() {
    const auto from = static_cast<ClassIndex>(choices_.below(Sizes::kCount));
    for (ClassIndex i = 0; i < Sizes::kCount; ++i) {
      const ClassIndex c = (from + i) % Sizes::kCount;
      if (bytes_for(c) == bytes_) return c;
    }
    return from;
  }
  void start_slab(ClassIndex c) {
    if (!remote_.empty()) return;
    const sizes::SlabShape& shape = Sizes::shape_of(c);
    slab().base = Address{1} << (kAddressesAbound ? 40 : 30);
    slab().size = {shape.slices};
    slab().start(shape, c, owner_);
    free_.clear();
    for (std::uint32_t i = 0; i < shape.capacity; ++i) free_.insert(i);
  }
  void take() {
    if (free_.empty()) return;
    const auto count = static_cast<std::uint32_t>(1 + choices_.below(free_.size()));
    std::vector<void*> out(count);
    slab().take(count, out.data());
    for (std::uint32_t i = count; i-- > 0;) {
      always_check(slab().index_of(address_of(out[i])) == *free_.begin(), "not the lowest block");
      free_.erase(free_.begin());
    }
  }
  // Some of the blocks in a row, up to the first that is not used.
  void give() {
    std::vector<void*> blocks;
    std::set<std::uint32_t> given;
    bool good = true;
    std::size_t index = choices_.below(slab().capacity());
    for (std::size_t n = 1 + choices_.below(40); n-- > 0;) {
      const auto i = static_cast<std::uint32_t>(index);
      if (remote_.contains(i)) break;  // is no longer the owner's to free
      blocks.push_back(slab().block_at(i));
      good = good && !free_.contains(i) && given.insert(i).second;
      index = (index + 1 + choices_.below(3)) % slab().capacity();
    }
    const auto count = static_cast<std::uint32_t>(blocks.size());
    if (count == 0) return;
    always_check(slab().give(blocks.data(), count) == given.size(), "not all were given");
    free_.insert(given.begin(), given.end());
  }
  void give_remotely() {
    const auto index = static_cast<std::uint32_t>(choices_.below(slab().capacity()));
    if (free_.contains(index)) return;
    const Word mask = bit(index % kWordBits);
    const bool doubled = slab().give_remotely(index / kWordBits, mask) != 0;
    always_check(doubled == remote_.contains(index), "a double free is told wrongly");
    remote_.insert(index);
    told_ = choices_.one_in(2);  // another thread may announce later
    if (told_) slab().announce();
  }
  void collect() {
    const std::uint32_t gained =
        slab().collect([](std::uint32_t) { check_failed("a double free where there was none"); });
    always_check(gained == remote_.size(), "not everything came home");
    free_.insert(remote_.begin(), remote_.end());
    remote_.clear();
  }
  void look_into(slab::Owner& owner) {
    owner.inbox.take_all([&](slab::Slab* found) {
      always_check(found == &slab() && !found->is_announced(), "an inbox is torn");
      if (found->owner() == &owner) {
        collect();
      } else {
        found->announce();
      }
    });
  }
  void look_into_inbox() { look_into(owners_[choices_.below(2)]); }
  slab::Owner* inbox_of_slab() {
    for (slab::Owner& owner : owners_) {
      bool found = false;
      std::vector<slab::Slab*> again;
      if (owner.inbox.empty() || closed(owner)) continue;
      owner.inbox.take_all([&](slab::Slab* there) {
        found = true;
        again.push_back(there);
      });
      for (slab::Slab* const there : again) put_back(owner, there);
      if (found) return &owner;
    }
    return nullptr;
  }
  // Announces to the owner that it had been announced to.
  void put_back(slab::Owner& owner, slab::Slab* there) {
    slab::Owner* const real = there->owner();
    there->set_owner(&owner);
    there->announce();
    there->set_owner(real);
  }
  bool closed(const slab::Owner& owner) const { return closed_[&owner - owners_]; }
  // The owner leaves; an orphan is adopted; or a thread that was late announces to one who is not
  // the owner any more.
  void change_hands() {
    if (owner_ != nullptr) {
      slab().set_owner(nullptr);
      slab::Owner& leaving = *owner_;
      owner_ = nullptr;
      if (choices_.one_in(2)) {
        leaving.inbox.close([](slab::Slab* found) { found->announce(); });
        closed_[&leaving - owners_] = true;
      }
      told_ = false;  // an orphan's marks wait for its adopter
      return;
    }
    const std::size_t which = choices_.below(2);
    owner_ = &owners_[which];
    if (closed_[which]) owner_->inbox.open();
    closed_[which] = false;
    slab().set_owner(owner_);
    collect();
  }

  Choices& choices_;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
  slab::Owner owners_[2];
  bool closed_[2] = {};
  slab::Owner* owner_ = &owners_[0];
  std::set<std::uint32_t> free_;
  std::set<std::uint32_t> remote_;
  bool told_ = false;
};

}  // namespace allod::test

// Caches of threads over a shared domain.
#pragma once

#include <algorithm>

#include "allod/heap/engine.hpp"

namespace allod::heap {

// The room of a cache in bytes: first, and more for each miss. Beyond kManyMisses it grows with
// their square, since a thread that goes on missing takes turns that others wait for.
inline constexpr std::size_t kFirstCacheBytes = std::size_t{6} << 10;
inline constexpr std::size_t kMoreCacheBytes = 32;
inline constexpr std::size_t kManyMisses = 128;
// The room of all caches together, roughly, and the limits for one of them.
inline constexpr std::size_t kAllCachesBytes = std::size_t{4} << 20;
inline constexpr std::size_t kMostCacheBytes = std::size_t{256} << 10;
inline constexpr std::size_t kLeastCacheBytes = std::size_t{32} << 10;
// One class may have this part of a cache.
inline constexpr std::size_t kCacheShare = 32;

template <class Policy, class Above>
auto Engine<Policy, Above>::attach_cache(Domain& home) noexcept -> Cache* {
  cache_count_.fetch_add(1, std::memory_order_relaxed);
  Turn turn{home, gate_};
  Cache* cache = home.free_caches;
  if (cache != nullptr) {
    home.free_caches = cache->next_free;
  } else {
    void* const memory = space_.allocate_metadata(sizeof(Cache));
    if (memory == nullptr) {
      cache_count_.fetch_sub(1, std::memory_order_relaxed);
      return nullptr;
    }
    cache = new (memory) Cache{home};
    cache->next = home.caches.load(std::memory_order_relaxed);
    home.caches.store(cache, std::memory_order_release);
  }
  cache->is_used = true;
  cache->thread = space_.platform().thread_id();
  cache->misses = 0;
  return cache;
}

template <class Policy, class Above>
template <class Visit>
inline void Engine<Policy, Above>::for_each_cache(const Domain& domain, Visit&& visit) noexcept {
  for (Cache* cache = domain.caches.load(std::memory_order_acquire); cache != nullptr;
       cache = cache->next) {
    visit(*cache);
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::equip_cache(Cache& cache, std::size_t bytes) noexcept {
  Turn turn{cache.home, gate_};
  cache.thread = 0;
  cache.is_processors = true;
  for (ClassIndex c = 0; c < kClasses; ++c) {
    const std::size_t fit = bytes / Sizes::size_of(c);
    const std::uint32_t usual = usual_capacity(c);
    const std::uint32_t capacity = fit < usual ? static_cast<std::uint32_t>(fit) : usual;
    if (capacity <= cache.magazines[c].capacity()) continue;
    replace_cells(cache.home, cache.magazines[c], capacity);
    cache.classes[c / kWordBits] |= bit(c % kWordBits);
  }
}

template <class Policy, class Above>
void Engine<Policy, Above>::detach_cache(Cache& cache) noexcept {
  Turn turn{cache.home, gate_};
  empty_in_turn(cache);
  cache.is_used = cache.is_processors = false;
  cache.next_free = cache.home.free_caches;
  cache.home.free_caches = &cache;
  cache_count_.fetch_sub(1, std::memory_order_relaxed);
}

template <class Policy, class Above>
void Engine<Policy, Above>::empty_cache(Cache& cache, typename Turn::Wait wait) noexcept {
  Turn turn{cache.home, gate_, wait};
  if (turn) empty_in_turn(cache);
}

template <class Policy, class Above>
void Engine<Policy, Above>::empty_in_turn(Cache& cache) noexcept {
  for (std::uint32_t word = 0; word < words_for(kClasses); ++word) {
    for (Word rest = cache.classes[word]; rest != 0; rest &= rest - 1) {
      const ClassIndex c = word * kWordBits + lowest_bit(rest);
      give_home(cache, cache.magazines[c], c, cache.magazines[c].count());
      give_home(cache, cache.freed[c], c, cache.freed[c].count());
    }
  }
}

// Also fills the cache with half a magazine, and with what shares a cache line with its last block:
// two threads that write neighbours would take the line from each other.
template <class Policy, class Above>
void* Engine<Policy, Above>::allocate_cached(Cache& cache, ClassIndex c, bool* zero) noexcept {
  Turn turn{cache.home, gate_};
  grow_cache(cache, cache.magazines[c], c);
  if (__builtin_expect(cache.freed[c].count() != 0, 0)) {
    cache.reuse_freed(c, ~0U);
    return cache.magazines[c].pop();
  }
  void* const block = allocate_class(cache.home, c, zero);
  if (block == nullptr) return nullptr;
  Magazine& from = cache.home.magazines[c];
  Magazine& to = cache.magazines[c];
  const auto line = [](const void* at) noexcept { return address_of(at) / kCacheLine; };
  const std::uint32_t room = to.capacity() - to.count();
  const std::uint32_t most = std::min(room, from.count());
  std::uint32_t count = std::min(room / 2, most);
  const void* last = count == 0 ? block : *(from.top - count);
  for (; count < most && line(*(from.top - count - 1)) == line(last); ++count) {
    last = *(from.top - count - 1);
  }
  if (count == 0) return block;
  std::memcpy(to.top, from.top - count, count * sizeof(void*));
  from.top -= count;
  to.top += count;
  return block;
}

template <class Policy, class Above>
void Engine<Policy, Above>::release_cached(Cache& cache, ClassIndex c, void* address) noexcept {
  Turn turn{cache.home, gate_};
  Magazine& magazine = cache.magazine_for_frees(c);
  grow_cache(cache, magazine, c);
  if (magazine.push(address)) return;
  give_home(cache, magazine, c, (magazine.capacity() + 1) / 2);
  if (magazine.push(address)) return;
  if (cache.counts != nullptr) cache.counts[c].freed.add(1);
  release(cache.home, address);
}

// Gives the `count` oldest blocks to the domain.
template <class Policy, class Above>
void Engine<Policy, Above>::give_home(Cache& cache, Magazine& magazine, ClassIndex c,
                                      std::uint32_t count) noexcept {
  if (count == 0) return;
  cache.note_given_up(magazine, c, count);
  for (std::uint32_t i = 0; i < count; ++i) {
    void* const block = magazine.bottom[i];
    // The slab may have another owner by now.
    if (space_.map().tag_of(address_of(block)) != space::make_tag(cache.home.id(), c)) {
      release(cache.home, block);
      continue;
    }
    if (!cache.home.magazines[c].push(block)) release_own(cache.home, c, block);
  }
  magazine.drop_oldest(count);
}

// Doubles a magazine if its blocks fit into the cache's room. More threads have less room each.
template <class Policy, class Above>
void Engine<Policy, Above>::grow_cache(Cache& cache, Magazine& magazine, ClassIndex c) noexcept {
  if (cache.misses != ~0U) ++cache.misses;
  const std::size_t part = kAllCachesBytes / (cache_count_.load(std::memory_order_relaxed) + 1);
  const std::size_t goal = part > kMostCacheBytes    ? kMostCacheBytes
                           : part < kLeastCacheBytes ? kLeastCacheBytes
                                                     : part;
  const std::size_t misses = cache.misses;
  const std::size_t growth = misses > kManyMisses ? misses * misses / kManyMisses : misses;
  const std::size_t earned = kFirstCacheBytes + kMoreCacheBytes * growth;
  const std::size_t room = earned < goal ? earned : goal;
  const std::size_t size = Sizes::size_of(c);
  const std::size_t fit = goal / kCacheShare / size;
  const std::uint32_t limit = usual_capacity(c);
  const std::uint32_t most = fit < limit ? static_cast<std::uint32_t>(fit) : limit;
  const std::uint32_t capacity = magazine.capacity();
  if (capacity >= most) return;
  const std::uint32_t first = size < kCacheLine / 4 ? 7 : 3;
  const std::uint32_t doubled = capacity == 0 ? first : 2 * capacity + 1;
  const std::uint32_t next = doubled < most ? doubled : most;
  const std::size_t more = (next - capacity) * size;
  if (more > room || cache.bytes > room - more) return;
  replace_cells(cache.home, magazine, next);
  cache.bytes += (magazine.capacity() - capacity) * size;
  cache.classes[c / kWordBits] |= bit(c % kWordBits);
}

// In the child of a fork. The top of a magazine cannot be trusted unless it was at rest: blocks of
// other caches stay in use.
template <class Policy, class Above>
void Engine<Policy, Above>::forget_caches(Domain& domain, const Cache* own) noexcept {
  domain.free_caches = nullptr;
  for_each_cache(domain, [&](Cache& cache) noexcept {
    if (&cache == own || cache.is_at_rest) return;
    if (cache.is_used) cache_count_.fetch_sub(1, std::memory_order_relaxed);
    for (Magazine& magazine : cache.magazines) magazine.top = magazine.bottom;
    for (Magazine& magazine : cache.freed) magazine.top = magazine.bottom;
    cache.is_used = cache.is_processors = false;
    cache.next_free = domain.free_caches;
    domain.free_caches = &cache;
  });
}

}  // namespace allod::heap

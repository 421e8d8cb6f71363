// What the allocator asks of an operating system.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::os {

// Some bytes from an address on.
struct Piece {
  void* address;
  std::size_t bytes;
};

// All functions are thread-safe, leave errno alone, and report failure by their
// result. Addresses and lengths are multiples of page_size().
//   start()                      reads what the others need; called once, first
//   page_size()                  bytes
//   address_space_limit()        bytes this process may map; 0 means no limit
//   memory_limit()               bytes of memory that the container of this process may
//                                have; 0 means no limit; not cheap
//   reserve(bytes, alignment)    addresses without access and without memory
//   gathers()                    are reservations best beside each other, as one mapping?
//   reserve_at(address, bytes)   the same as reserve() at these addresses, which lie behind usable
//                                memory of the caller; false when they are somebody's, or it
//                                cannot. Where mappings are scarce they may be usable at once
//   reserve_zeros(bytes)         the same, but reads give zeros
//   commit(address, bytes)       makes reserved addresses readable and writable
//   map(bytes)                   reserve and commit in one
//   unmap(address, bytes)        gives addresses and memory back
//   purge(address, bytes)        gives memory back, keeps the addresses; true
//                                when they read as zero from now on
//   purge_each(pieces, count)    the same for each piece, in fewer calls where the system has one
//                                for several
//   populate(address, bytes)     makes usable memory present in one go; may do nothing
//   dump(address, bytes, wanted) are these addresses to be in core files? At first they are; may
//                                do nothing
//   prefer_huge(address, bytes)  asks for huge pages there, once it is usable; may do nothing
//   avoid_huge(address, bytes)   no huge pages there, now or later; may do nothing
//   prefer_huge_once(address, bytes)
//                                where they are avoided: the first byte of each huge page is made
//                                present, with all of that page if it can be
//   grow(address, from, to)      lengthens a mapping where it stands; 0, or an error number,
//                                ENOMEM when there is no room behind it
//   move(address, from, target, to)
//                                moves a mapping to reserved addresses by page
//                                tables, without copying, and lengthens it; when it
//                                cannot, the target may be anybody's
//   map_huge(bytes, shift, error)
//                                map in huge pages of 2^shift bytes that the system
//                                has set aside; null, and why, when there are none
//   present_bytes(address, bytes)
//                                about how much of whole, usable pages is in memory; all
//                                of it when the system does not tell
//   look(address, bytes, pages)  writes for each usable page whether it is in memory, in the lowest
//                                bit of a byte, for each 4 KiB of which there must be room; those
//                                that are swapped out are not; false when the system does not tell
//   peek(to, from, bytes)        copies what may not be there any more; no multiples of pages; 0,
//                                EFAULT when some of it cannot be read, or another error number
//                                when the system copies nothing so
//   lock(address, bytes)         keeps usable memory present; 0, or an error number
//   bind(address, bytes, nodes)  takes memory from these nodes alone, one bit each;
//                                0, or an error number
//   name(address, bytes, text)   shows up in the system's list of mappings; may
//                                do nothing
//   now_ms()                     monotonic, coarse
//   after_fork_in_child()        only the calling thread is left
//   thread_id()                  of the calling thread, never 0
//   processors()                 that this process may run on, at least 1
//   processor_quota()            processors whose time the container of this process may
//                                use, rounded up; 0 means no limit; not cheap
//   processor()                  the number of the one that the thread is on; a guess
//   start_barriers()             from now on barrier() works; false when it cannot
//   barrier()                    every thread passes a memory barrier
//   yield()                      lets other threads run
//   self()                       tells threads apart; the same in a child of fork
//   own_word()                   a reference to a pointer of the thread's own, first null
//   start_helper(function, argument)
//                                runs function on a thread of our own that
//                                belongs to no library; false when it cannot
//   wait_for_helper()            until that thread, whose function is about to return, is not there
//                                any more; false when that takes too long, or when it is somebody
//                                else's

template <class P>
concept Platform = requires(P platform, void* address, std::size_t bytes, const char* text,
                            int error, std::atomic<std::uint32_t>* word, void (*function)(void*)) {
  { platform.start() };
  { platform.page_size() } -> std::same_as<std::size_t>;
  { platform.address_space_limit() } -> std::same_as<std::size_t>;
  { platform.memory_limit() } -> std::same_as<std::size_t>;
  { platform.reserve(bytes, bytes) } -> std::same_as<void*>;
  { platform.gathers() } -> std::same_as<bool>;
  { platform.reserve_at(address, bytes) } -> std::same_as<bool>;
  { platform.reserve_zeros(bytes) } -> std::same_as<void*>;
  { platform.commit(address, bytes) } -> std::same_as<bool>;
  { platform.map(bytes) } -> std::same_as<void*>;
  { platform.unmap(address, bytes) };
  { platform.purge(address, bytes) } -> std::same_as<bool>;
  { platform.purge_each(static_cast<const Piece*>(address), bytes) } -> std::same_as<bool>;
  { platform.populate(address, bytes) };
  { platform.dump(address, bytes, true) };
  { platform.prefer_huge(address, bytes) };
  { platform.avoid_huge(address, bytes) };
  { platform.prefer_huge_once(address, bytes) };
  { platform.grow(address, bytes, bytes) } -> std::same_as<int>;
  { platform.move(address, bytes, address, bytes) } -> std::same_as<bool>;
  { platform.map_huge(bytes, 21U, &error) } -> std::same_as<void*>;
  { platform.present_bytes(address, bytes) } -> std::same_as<std::size_t>;
  { platform.look(address, bytes, static_cast<unsigned char*>(address)) } -> std::same_as<bool>;
  { P::peek(address, Address{}, bytes) } -> std::same_as<int>;
  { platform.lock(address, bytes) } -> std::same_as<int>;
  { platform.bind(address, bytes, std::uint64_t{}) } -> std::same_as<int>;
  { platform.name(address, bytes, text) };
  { platform.now_ms() } -> std::same_as<std::uint64_t>;
  { platform.after_fork_in_child() };
  { platform.thread_id() } -> std::same_as<std::uint32_t>;
  { platform.processors() } -> std::same_as<std::uint32_t>;
  { platform.processor_quota() } -> std::same_as<std::uint32_t>;
  { P::processor() } -> std::same_as<std::uint32_t>;
  { platform.start_helper(function, address) } -> std::same_as<bool>;
  { platform.wait_for_helper() } -> std::same_as<bool>;
  { platform.start_barriers() } -> std::same_as<bool>;
  { platform.barrier() };
  { platform.yield() };
  { P::self() } -> std::same_as<void*>;
  { P::own_word() } -> std::same_as<void*&>;
  { P::futex_wait(word, std::uint32_t{}) };
  { P::futex_wait_ms(word, std::uint32_t{}, std::uint32_t{}) };
  { P::futex_wake(word, 1) };
};

// What a system may be able to do besides:
//   guard_bytes(wished)          the least that guard() takes; 0: there are to be no guards now.
//                                `wished`: by a heap that is hardened itself
//   guard(address, bytes)        every access to the usable pages is a fault until unguard(), and
//                                what they held is gone; false when that cannot be
//   unguard(address, bytes)      what guard() took of these pages is usable again, and reads as
//                                zero; the others stay as they are. False, and so does all of it,
//                                when that cannot be
template <class P>
concept Guarding = Platform<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.guard_bytes(true) } -> std::same_as<std::size_t>;
  { platform.guard(address, bytes) } -> std::same_as<bool>;
  { platform.unguard(address, bytes) } -> std::same_as<bool>;
};

//   shut(address, bytes)         every access to the usable pages is a fault until reopen(), and
//                                what they hold stays; false, and nothing has changed, when that
//                                cannot be
//   reopen(address, bytes)       they are usable again, with guards that are mappings of their own;
//                                false when that cannot be
//   spares_mappings()            the process has no mappings left, and from now on none is taken
//   for
//                                guards or for what is shut; false when it has, or none ever is
template <class P>
concept Shutting = Guarding<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.shut(address, bytes) } -> std::same_as<bool>;
  { platform.reopen(address, bytes) } -> std::same_as<bool>;
  { platform.spares_mappings() } -> std::same_as<bool>;
};

//   erase(address, bytes)        nothing stays of what the usable pages hold, if the platform
//   cares:
//                                true when they have no memory any more
template <class P>
concept Erasing = Platform<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.erase(address, bytes) } -> std::same_as<bool>;
};

//   begin_helper()               called by the helper itself, first
//   follow_rights()              called by it every now and then: gives up what rights the program
//                                has given up since
template <class P>
concept Following = Platform<P> && requires {
  { P::begin_helper() };
  { P::follow_rights() };
};

//   scatters()                   are spans to lie at random places?
//   draw(bound)                  0 to bound - 1, so that nobody can tell which
template <class P>
concept Scattering = Platform<P> && requires(P platform) {
  { platform.scatters() } -> std::same_as<bool>;
  { platform.draw(std::uint32_t{}) } -> std::same_as<std::uint32_t>;
};

}  // namespace allod::os

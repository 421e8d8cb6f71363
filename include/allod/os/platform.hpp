// The operating system as the allocator needs it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include "allod/base/base.hpp"

namespace allod::os {

struct Piece {
  void* address;
  std::size_t bytes;
};

enum class Moved : std::uint8_t {
  no,  // nothing changed: the system cannot, or the program has locked the memory
  yes,
  lost,  // the pages stay; the target may be mapped no more, or by another thread
};

// The outcome of a sequence that takes a block off a stack of a processor, or puts one on. `moved`:
// the thread was interrupted or migrated. Unless `done`, nothing has happened.
enum class Sequence : std::uint8_t { done, refused, moved };

// All functions are thread-safe, keep errno, and report failure by their result. Addresses and
// lengths must be multiples of page_size().
//   start()                      initialises the others; called once, first
//   page_size()                  bytes
//   address_space_limit()        bytes that this process may map; 0: no limit
//   memory_limit()               bytes that this process's container may use; 0: no limit; slow
//   reserve(bytes, alignment)    reserves addresses, without access or memory
//   gathers()                    whether reservations should be adjacent, as one mapping
//   reserve_at(address, bytes)   reserve() at these addresses, right behind usable memory of the
//                                caller; false if they are taken or on failure. May be usable at
//                                once if mappings are scarce
//   reserve_zeros(bytes)         reserve(), but reads return zeros, and core files lack it
//   commit(address, bytes)       makes reserved addresses readable and writable
//   map(bytes)                   reserve and commit
//   unmap(address, bytes)        releases addresses and memory
//   purge(address, bytes)        releases memory, keeps addresses; true if they now read as zero
//   purge_each(pieces, count)    purge() of each piece, in one system call where there is one; true
//   if
//                                any of them now reads as zero
//   populate(address, bytes)     hint: makes usable memory present
//   dump(address, bytes, wanted) hint: includes the addresses in core files, as initially, or not
//   prefer_huge(address, bytes)  hint: huge pages for usable memory
//   avoid_huge(address, bytes)   hint: no huge pages, now or later
//   prefer_huge_once(address, bytes)
//                                where huge pages are avoided: populates the first byte of each,
//                                and all of it as a huge page if possible
//   populate_huge(address, bytes)
//                                the same where they are not avoided
//   grow(address, from, to)      extends a mapping in place; 0, or an error number: ENOMEM if
//                                there is no room behind it
//   move(address, from, target, to)
//                                moves a mapping to reserved addresses without copying, and
//                                extends it; on failure others may have taken the target
//   move_pages(address, bytes, target)
//                                moves the memory of usable pages, all in one mapping, to other
//                                usable ones, which lose theirs; the former read as zero then.
//                                See Moved. What the program said of them moves along
//   forget_advice(address, bytes)
//                                makes usable pages readable, writable and inherited by children,
//                                whatever the program said of them
//   is_one_mapping(address, bytes)
//                                whether usable pages are in one mapping
//   renew(address, bytes)        maps purged pages anew, without what was said of them, so that
//                                those that moved there merge with their neighbours; false, and
//                                nothing changed, if the system refuses
//   map_huge(bytes, shift, error)
//                                map() in reserved huge pages of 2^shift bytes; null and an error
//                                number if there are none
//   present_bytes(address, bytes, exact)
//                                estimates the present bytes of usable pages; all if unknown.
//                                `exact`: precisely, if all of them are at the start
//   look(address, bytes, pages)  sets the lowest bit of a byte for each present usable page;
//                                `pages` has a byte for each 4 KiB. Swapped pages are not
//                                present. False if unknown
//   peek(to, from, bytes)        copies memory that may be gone, at any address; 0, EFAULT if it is
//                                unreadable, or another error number if the system cannot copy
//   lock(address, bytes)         keeps usable memory present; 0, or an error number
//   bind(address, bytes, nodes)  restricts memory to these nodes, one bit each; 0, or an error
//                                number
//   name(address, bytes, text)   hint: names the mapping in the system's list
//   now_ms()                     monotonic, coarse
//   after_fork_in_child()        only the calling thread is left
//   thread_id()                  of the calling thread, never 0
//   processors()                 on which this process may run, at least 1
//   processor_quota()            processors whose time this process's container may use, rounded
//                                up; 0: no limit; slow
//   processor()                  the calling thread's current processor; a hint
//   nodes()                      memory nodes to keep apart, whose ids are below that; 1 if the
//                                process has a memory policy of its own; slow
//   node()                       the node of the calling thread's current processor; a hint
//   node_of(processor)           the node of a processor on which the calling thread has just been;
//                                all ones if unknown
//   start_barriers()             enables barrier(); false if that is impossible
//   barrier()                    makes every thread pass a memory barrier
//   yield()                      lets other threads run
//   self()                       identifies the calling thread; unchanged in a child of fork
//   own_word()                   a reference to a pointer of the calling thread, initially null
//   block_signals()              no handler interrupts the thread from now on; the former mask
//   restore_signals(mask)        sets that mask again
//   start_helper(function, argument)
//                                runs `function` on a thread of our own that belongs to no
//                                library, once the one before has ended; false if that is
//                                impossible
//   wait_for_helper()            waits until that thread, whose function is about to return, is
//                                gone; false if that takes too long, or in another process
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
  { platform.populate_huge(address, bytes) };
  { platform.grow(address, bytes, bytes) } -> std::same_as<int>;
  { platform.move(address, bytes, address, bytes) } -> std::same_as<bool>;
  { platform.move_pages(address, bytes, address) } -> std::same_as<Moved>;
  { platform.forget_advice(address, bytes) };
  { platform.is_one_mapping(address, bytes) } -> std::same_as<bool>;
  { platform.renew(address, bytes) } -> std::same_as<bool>;
  { platform.map_huge(bytes, 21U, &error) } -> std::same_as<void*>;
  { platform.present_bytes(address, bytes, true) } -> std::same_as<std::size_t>;
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
  { P::nodes() } -> std::same_as<std::uint32_t>;
  { P::node() } -> std::same_as<std::uint32_t>;
  { P::node_of(std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  { platform.start_helper(function, address) } -> std::same_as<bool>;
  { platform.wait_for_helper() } -> std::same_as<bool>;
  { platform.start_barriers() } -> std::same_as<bool>;
  { platform.barrier() };
  { platform.yield() };
  { P::self() } -> std::same_as<void*>;
  { P::own_word() } -> std::same_as<void*&>;
  { P::block_signals() } -> std::same_as<std::uint64_t>;
  { P::restore_signals(std::uint64_t{}) };
  { P::futex_wait(word, std::uint32_t{}) };
  { P::futex_wait_ms(word, std::uint32_t{}, std::uint32_t{}) };
  { P::futex_wait_us(word, std::uint32_t{}, std::uint64_t{}) };
  { P::futex_wake(word, 1) };
};

// Optional functions:
//   guard_bytes(wished)          the least that guard() takes; 0: no guards now. `wished`: for a
//                                heap with option `hardened`
//   guard(address, bytes)        discards the usable pages, and makes every access fault until
//                                unguard(); false on failure
//   unguard(address, bytes)      makes guarded ones of these pages usable again, reading as zero;
//                                false, and nothing changed, on failure
template <class P>
concept Guarding = Platform<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.guard_bytes(true) } -> std::same_as<std::size_t>;
  { platform.guard(address, bytes) } -> std::same_as<bool>;
  { platform.unguard(address, bytes) } -> std::same_as<bool>;
};

//   shut(address, bytes)         makes every access to the usable pages fault until reopen(), and
//                                keeps their contents; false, and nothing changed, on failure
//   reopen(address, bytes)       makes them usable again, including guards that are mappings;
//                                false on failure
//   spares_mappings()            true if the process has no mappings left: guards and shut pages
//                                take none from now on
template <class P>
concept Shutting = Guarding<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.shut(address, bytes) } -> std::same_as<bool>;
  { platform.reopen(address, bytes) } -> std::same_as<bool>;
  { platform.spares_mappings() } -> std::same_as<bool>;
};

//   erase(address, bytes)        erases the usable pages if the platform wants that; true if they
//                                have no memory afterwards
template <class P>
concept Erasing = Platform<P> && requires(P platform, void* address, std::size_t bytes) {
  { platform.erase(address, bytes) } -> std::same_as<bool>;
};

//   begin_helper()               called by the helper first
//   follow_rights()              called by it from time to time: drops rights that the program has
//                                dropped since
template <class P>
concept Following = Platform<P> && requires {
  { P::begin_helper() };
  { P::follow_rights() };
};

//   Restartable::close(), open() between these, no thread changes a magazine of a processor; false
//                                if the system cannot see to it. open() must follow in any case
template <class P>
concept Restarting = Platform<P> && requires {
  { P::Restartable::close() } -> std::same_as<bool>;
  { P::Restartable::open() };
};

//   Restartable                  the rest of it: stacks of a processor; see
//                                os/linux/restartable.hpp
//   Guest::own_id(), host(), expect()
//                                processes in the memory of another; see os/linux/guest.hpp
//   ThreadEnd::watch(function)   calls `function(value)` at the end of each thread that has called
//                                expect(value) with a value that is not null; false if that is
//                                impossible. Called once; may allocate
//   watch_forks(before, in_parent, in_child)
//                                calls these around each fork. May allocate
template <class P>
concept Hosting =
    Restarting<P> && requires(typename P::ThreadEnd end, void* value, void (*function)(void*),
                              void (*handler)(), void** top) {
      { end.watch(function) } -> std::same_as<bool>;
      { end.expect(value) } -> std::same_as<bool>;
      { P::Guest::own_id() == P::Guest::host() } -> std::same_as<bool>;
      { P::Guest::expect() };
      { P::watch_forks(handler, handler, handler) };
      { P::Restartable::start() } -> std::same_as<bool>;
      {
        P::Restartable::push(P::Restartable::place(), &top, &top, value)
      } -> std::same_as<Sequence>;
      { P::Restartable::pop(P::Restartable::place(), &top, &top, top) } -> std::same_as<Sequence>;
      { P::Restartable::Area::is_missing() } -> std::same_as<bool>;
      { P::Restartable::Area::is_refused() } -> std::same_as<bool>;
      { P::Restartable::Area::enter() };
      { P::Restartable::Area::leave() };
    };

//   scatters()                   whether spans should lie at random places
//   draw(bound)                  unpredictable, in [0, bound)
template <class P>
concept Scattering = Platform<P> && requires(P platform) {
  { platform.scatters() } -> std::same_as<bool>;
  { platform.draw(std::uint32_t{}) } -> std::same_as<std::uint32_t>;
};

}  // namespace allod::os

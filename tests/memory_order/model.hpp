// What memory may do: the atomic accesses of one execution, as the C++ memory model sees them.
//
// The model is RC11 (O. Lahav, V. Vafeiadis, J. Kang, C. Hur, D. Dreyer, "Repairing Sequential
// Consistency in C/C++11", PLDI 2017) with the release sequences and the order of sequentially
// consistent operations of C++20 (H. Boehm, O. Giroux, V. Vafeiadis, P0668R5). Like RC11 it has no
// load buffering: a load returns the value of a store that was executed before.
//
// Each location keeps its stores in modification order. A load may return each store that coherence
// allows; a store may come between others in modification order; a read-modify-write follows the
// store that it reads. What happens before an access is kept as a vector clock, and as the latest
// store of each location that is known there, after the views of J. Kang, C. Hur, O. Lahav, V.
// Vafeiadis, D. Dreyer, "A Promising Semantics for Relaxed-Memory Concurrency", POPL 2017.
// A compare-and-exchange does not fail spuriously.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace order {

enum class Order : std::uint8_t { relaxed, consume, acquire, release, acq_rel, seq_cst, none };
[[nodiscard]] constexpr bool acquires(Order order) noexcept {
  return order == Order::consume || order == Order::acquire || order == Order::acq_rel ||
         order == Order::seq_cst;
}
[[nodiscard]] constexpr bool releases(Order order) noexcept {
  return order == Order::release || order == Order::acq_rel || order == Order::seq_cst;
}

// Thread 0 is whoever sets the scene, and looks at it afterwards.
inline constexpr unsigned kThreads = 5;
using Clock = std::array<std::uint32_t, kThreads>;

// What happens before a point of a thread.
struct View {
  Clock clock{};                    // by thread: its events so far
  std::vector<std::uint32_t> seen;  // by location: the latest store in modification order
};

struct Store {
  std::uint64_t value;
  std::uint32_t position;         // in modification order
  bool is_followed;               // by a read-modify-write of this store
  std::shared_ptr<View> message;  // what a thread that acquires it learns; null: nothing
};

struct Location {
  std::uintptr_t address;
  std::uint8_t bytes;
  std::vector<Store> stores;         // in the order of execution
  std::vector<std::uint32_t> order;  // modification order: indices of stores
};

struct Event {
  std::uint8_t thread;
  bool is_read, is_write, is_sc;
  std::uint32_t index;     // among the thread's events
  std::uint32_t location;  // kNoLocation: a fence
  std::uint32_t store;     // that it reads or writes
  Clock before, clock;     // of the event before it, and its own
};
inline constexpr std::uint32_t kNoLocation = ~0U;

class Memory {
 public:
  void reset();
  // A thread begins with what thread 0 knows.
  void begin(unsigned thread);
  // Thread 0 learns what all others know.
  void join_all();

  // The location at an address, which is made with the value that is there.
  std::uint32_t locate(std::uintptr_t address, std::uint8_t bytes);
  [[nodiscard]] const Location& at(std::uint32_t location) const { return locations_[location]; }
  [[nodiscard]] std::uint32_t last(std::uint32_t location) const {
    return locations_[location].order.back();
  }
  [[nodiscard]] std::uint32_t seen(unsigned thread, std::uint32_t location) const;

  // Whether a load by the thread may return this store.
  [[nodiscard]] bool may_read(unsigned thread, std::uint32_t location, std::uint32_t store) const;
  // The positions at which a store by the thread may come.
  void positions(unsigned thread, std::uint32_t location, std::vector<std::uint32_t>& out) const;

  std::uint64_t read(unsigned thread, std::uint32_t location, std::uint32_t store, Order order);
  void write(unsigned thread, std::uint32_t location, std::uint32_t position, std::uint64_t value,
             Order order);
  void modify(unsigned thread, std::uint32_t location, std::uint32_t store, std::uint64_t value,
              Order order);
  void fence(unsigned thread, Order order);
  // All threads pass a barrier that one of them asks the system for.
  void barrier(unsigned thread, unsigned threads);
  // The thread sees the latest store there from now on, without learning anything by it.
  void refresh(unsigned thread, std::uint32_t location);

  // Whether there is an order of all sequentially consistent operations.
  [[nodiscard]] bool is_consistent();
  // Whether what happened is what a machine without reordering does in the order of execution.
  [[nodiscard]] bool is_plain() const noexcept { return is_plain_; }

  // A plain access. False if it races with another.
  [[nodiscard]] bool access(unsigned thread, std::uintptr_t address, unsigned bytes, bool is_write);

 private:
  struct Thread {
    View now, acquired, released;
    bool has_acquired = false, has_released = false;
    std::uint32_t events = 0;
  };
  // The last accesses to some bytes of a word.
  struct Cell {
    std::uintptr_t word = 0;
    std::uint32_t generation = 0;
    std::uint8_t mask = 0;
    std::uint8_t writer = 0;
    std::uint32_t written = 0;
    Clock read{}, atomic_read{}, atomic_written{};
  };
  enum class Access : std::uint8_t { read, write, atomic_read, atomic_write };

  bool check(unsigned thread, std::uintptr_t address, unsigned bytes, Access access);
  Cell& cell(std::uintptr_t word, std::uint8_t mask);
  void join(View& to, const View& from) const;
  Event& note(unsigned thread, std::uint32_t location, std::uint32_t store, Order order);
  void learn(unsigned thread, const Store& store, Order order);
  std::uint32_t insert(unsigned thread, std::uint32_t location, std::uint32_t position,
                       std::uint64_t value);
  void publish(unsigned thread, std::uint32_t location, std::uint32_t store, Order order,
               const std::shared_ptr<View>& inherited);
  std::uint32_t position_of(std::uint32_t location, std::uint32_t store) const;

  std::vector<Location> locations_;
  std::size_t used_ = 0;
  std::unordered_map<std::uintptr_t, std::uint32_t> places_;
  std::array<Thread, kThreads> threads_;
  std::vector<Event> events_;
  std::vector<Cell> cells_ = std::vector<Cell>(std::size_t{1} << 16);
  std::size_t cells_used_ = 0;
  std::uint32_t generation_ = 1;
  bool is_plain_ = true;

 public:
  bool has_race = false;  // of an atomic access with a plain one
};

}  // namespace order

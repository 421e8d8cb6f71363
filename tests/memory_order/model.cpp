#include "model.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace order {

void Memory::reset() {
  used_ = 0;
  places_.clear();
  events_.clear();
  ++generation_;
  cells_used_ = 0;
  is_plain_ = true;
  has_race = false;
  for (Thread& thread : threads_) {
    for (View* view : {&thread.now, &thread.acquired, &thread.released}) {
      view->clock = {};
      view->seen.clear();
    }
    thread.has_acquired = thread.has_released = false;
    thread.events = 0;
  }
}

void Memory::begin(unsigned thread) { join(threads_[thread].now, threads_[0].now); }

void Memory::join_all() {
  for (unsigned thread = 1; thread < kThreads; ++thread) {
    threads_[thread].now.clock[thread] = threads_[thread].events + 1;
    join(threads_[0].now, threads_[thread].now);
  }
  for (std::uint32_t location = 0; location < used_; ++location) refresh(0, location);
}

std::uint32_t Memory::locate(std::uintptr_t address, std::uint8_t bytes) {
  const auto [place, is_new] = places_.try_emplace(address, static_cast<std::uint32_t>(used_));
  if (!is_new) {
    if (locations_[place->second].bytes != bytes) std::abort();
    return place->second;
  }
  if (used_ == locations_.size()) locations_.emplace_back();
  Location& location = locations_[used_++];
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), bytes);
  location.address = address;
  location.bytes = bytes;
  location.stores.clear();
  location.stores.push_back({value, 0, false, nullptr});
  location.order.assign(1, 0);
  return place->second;
}

std::uint32_t Memory::position_of(std::uint32_t location, std::uint32_t store) const {
  return locations_[location].stores[store].position;
}

std::uint32_t Memory::seen(unsigned thread, std::uint32_t location) const {
  const View& view = threads_[thread].now;
  return location < view.seen.size() ? view.seen[location] : 0;
}

void Memory::join(View& to, const View& from) const {
  for (unsigned i = 0; i < kThreads; ++i) to.clock[i] = std::max(to.clock[i], from.clock[i]);
  if (to.seen.size() < from.seen.size()) to.seen.resize(from.seen.size(), 0);
  for (std::uint32_t i = 0; i < from.seen.size(); ++i) {
    if (from.seen[i] == to.seen[i]) continue;
    if (position_of(i, to.seen[i]) < position_of(i, from.seen[i])) to.seen[i] = from.seen[i];
  }
}

bool Memory::may_read(unsigned thread, std::uint32_t location, std::uint32_t store) const {
  return position_of(location, store) >= position_of(location, seen(thread, location));
}

void Memory::positions(unsigned thread, std::uint32_t location,
                       std::vector<std::uint32_t>& out) const {
  const Location& place = locations_[location];
  const std::uint32_t least = position_of(location, seen(thread, location)) + 1;
  for (auto position = static_cast<std::uint32_t>(place.order.size()); position >= least;
       --position) {
    if (!place.stores[place.order[position - 1]].is_followed) out.push_back(position);
  }
}

Event& Memory::note(unsigned thread, std::uint32_t location, std::uint32_t store, Order order) {
  Thread& self = threads_[thread];
  Event event{};
  event.thread = static_cast<std::uint8_t>(thread);
  event.is_sc = order == Order::seq_cst;
  event.before = self.now.clock;
  event.index = ++self.events;
  self.now.clock[thread] = event.index;
  event.location = location;
  event.store = store;
  event.clock = self.now.clock;
  events_.push_back(event);
  return events_.back();
}

void Memory::learn(unsigned thread, const Store& store, Order order) {
  if (store.message == nullptr) return;
  Thread& self = threads_[thread];
  if (acquires(order)) {
    join(self.now, *store.message);
  } else {
    join(self.acquired, *store.message);
    self.has_acquired = true;
  }
}

static void see(View& view, std::uint32_t location, std::uint32_t store) {
  if (view.seen.size() <= location) view.seen.resize(location + 1, 0);
  view.seen[location] = store;
}

std::uint64_t Memory::read(unsigned thread, std::uint32_t location, std::uint32_t store,
                           Order order) {
  const Location& place = locations_[location];
  if (!check(thread, place.address, place.bytes, Access::atomic_read)) has_race = true;
  if (store != last(location)) is_plain_ = false;
  const std::size_t event = events_.size();
  note(thread, location, store, order);
  learn(thread, place.stores[store], order);
  see(threads_[thread].now, location, store);
  events_[event].is_read = true;
  events_[event].clock = threads_[thread].now.clock;
  return place.stores[store].value;
}

std::uint32_t Memory::insert(unsigned thread, std::uint32_t location, std::uint32_t position,
                             std::uint64_t value) {
  Location& place = locations_[location];
  if (!check(thread, place.address, place.bytes, Access::atomic_write)) has_race = true;
  const auto store = static_cast<std::uint32_t>(place.stores.size());
  if (position != place.order.size()) is_plain_ = false;
  place.stores.push_back({value, position, false, nullptr});
  place.order.insert(place.order.begin() + position, store);
  for (std::size_t i = position + 1; i < place.order.size(); ++i) {
    place.stores[place.order[i]].position = static_cast<std::uint32_t>(i);
  }
  // Memory holds the last store, for whoever reads it afterwards.
  std::memcpy(reinterpret_cast<void*>(place.address), &place.stores[place.order.back()].value,
              place.bytes);
  return store;
}

void Memory::publish(unsigned thread, std::uint32_t location, std::uint32_t store, Order order,
                     const std::shared_ptr<View>& inherited) {
  Thread& self = threads_[thread];
  see(self.now, location, store);
  std::shared_ptr<View>& message = locations_[location].stores[store].message;
  if (releases(order)) {
    message = std::make_shared<View>(self.now);
  } else if (self.has_released) {
    message = std::make_shared<View>(self.released);
  }
  if (inherited == nullptr) return;
  if (message == nullptr) {
    message = inherited;  // never changed
  } else {
    join(*message, *inherited);
  }
}

void Memory::write(unsigned thread, std::uint32_t location, std::uint32_t position,
                   std::uint64_t value, Order order) {
  const std::uint32_t store = insert(thread, location, position, value);
  note(thread, location, store, order).is_write = true;
  publish(thread, location, store, order, nullptr);
}

void Memory::modify(unsigned thread, std::uint32_t location, std::uint32_t store,
                    std::uint64_t value, Order order) {
  const std::size_t event = events_.size();
  note(thread, location, store, order);
  learn(thread, locations_[location].stores[store], order);
  locations_[location].stores[store].is_followed = true;
  const std::uint32_t written = insert(thread, location, position_of(location, store) + 1, value);
  const std::shared_ptr<View> inherited = locations_[location].stores[store].message;
  publish(thread, location, written, order, inherited);
  events_[event].is_read = events_[event].is_write = true;
  events_[event].store = written;
  events_[event].clock = threads_[thread].now.clock;
}

void Memory::fence(unsigned thread, Order order) {
  Thread& self = threads_[thread];
  const std::size_t event = events_.size();
  note(thread, kNoLocation, 0, order);
  if (acquires(order) && self.has_acquired) join(self.now, self.acquired);
  if (releases(order)) {
    self.released = self.now;
    self.has_released = true;
  }
  events_[event].clock = self.now.clock;
}

// Each thread has done all that comes before, and does the rest after, in the eyes of the caller:
// the barrier synchronises with each thread, in both directions.
void Memory::barrier(unsigned thread, unsigned threads) {
  for (unsigned other = 1; other <= threads; ++other) fence(other, Order::seq_cst);
  View& all = threads_[thread].now;
  for (unsigned other = 1; other <= threads; ++other) {
    if (other != thread) join(all, threads_[other].now);
  }
  for (unsigned other = 1; other <= threads; ++other) {
    if (other != thread) join(threads_[other].now, all);
  }
}

void Memory::refresh(unsigned thread, std::uint32_t location) {
  see(threads_[thread].now, location, last(location));
}

namespace {

// The positions, in modification order, of what an operation comes before or after.
struct Reach {
  std::int64_t from = INT64_MAX, from_write = INT64_MAX;  // the least
  std::int64_t to = -1, to_read = -1;                     // the greatest
};

bool has_cycle(const std::vector<std::vector<std::uint32_t>>& edges) {
  std::vector<std::uint32_t> incoming(edges.size(), 0);
  for (const auto& targets : edges) {
    for (const std::uint32_t target : targets) ++incoming[target];
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < edges.size(); ++i) {
    if (incoming[i] == 0) ready.push_back(i);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    ++done;
    for (const std::uint32_t target : edges[node]) {
      if (--incoming[target] == 0) ready.push_back(target);
    }
  }
  return done != edges.size();
}

}  // namespace

// [atomics.order]: an order S that agrees with "strongly happens before" and, by way of fences too,
// with "coherence-ordered before". It exists if these have no cycle.
bool Memory::is_consistent() {
  if (is_plain_) return true;
  std::vector<const Event*> nodes;
  for (const Event& event : events_) {
    if (event.is_sc) nodes.push_back(&event);
  }
  if (nodes.size() < 2) return true;
  std::vector<std::unordered_map<std::uint32_t, Reach>> reach(nodes.size());
  const auto add_from = [&](std::size_t node, const Event& event) {
    Reach& at = reach[node][event.location];
    const std::int64_t position = position_of(event.location, event.store);
    at.from = std::min(at.from, position);
    if (event.is_write) at.from_write = std::min(at.from_write, position);
  };
  const auto add_to = [&](std::size_t node, const Event& event) {
    Reach& at = reach[node][event.location];
    const std::int64_t position = position_of(event.location, event.store);
    at.to = std::max(at.to, position);
    if (event.is_read) at.to_read = std::max(at.to_read, position);
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Event& node = *nodes[i];
    if (node.location != kNoLocation) {
      add_from(i, node);
      add_to(i, node);
      continue;
    }
    for (const Event& event : events_) {
      if (event.location == kNoLocation) continue;
      if (event.clock[node.thread] >= node.index) add_from(i, event);
      if (node.clock[event.thread] >= event.index) add_to(i, event);
    }
  }
  const auto precedes = [&](std::size_t i, std::size_t j) {
    const Event& a = *nodes[i];
    const Event& b = *nodes[j];
    if (a.thread == b.thread) return a.index < b.index;
    if (b.before[a.thread] > a.index) return true;
    const auto& smaller = reach[i].size() < reach[j].size() ? reach[i] : reach[j];
    for (const auto& [location, unused] : smaller) {
      const auto from = reach[i].find(location);
      const auto to = reach[j].find(location);
      if (from == reach[i].end() || to == reach[j].end()) continue;
      if (from->second.from < to->second.to) return true;
      if (to->second.to_read >= 0 && from->second.from_write == to->second.to_read) return true;
    }
    return false;
  };
  std::vector<std::vector<std::uint32_t>> edges(nodes.size());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    for (std::uint32_t j = 0; j < nodes.size(); ++j) {
      if (i != j && precedes(i, j)) edges[i].push_back(j);
    }
  }
  return !has_cycle(edges);
}

Memory::Cell& Memory::cell(std::uintptr_t word, std::uint8_t mask) {
  for (std::size_t i = (word >> 3) * 0x9e3779b97f4a7c15 >> 48;; i = (i + 1) % cells_.size()) {
    Cell& cell = cells_[i];
    if (cell.generation != generation_) {
      cell = Cell{};
      cell.generation = generation_;
      cell.word = word;
      cell.mask = mask;
      if (++cells_used_ == cells_.size()) std::abort();  // a search would not end
    }
    if (cell.word == word && cell.mask == mask) return cell;
  }
}

bool Memory::check(unsigned thread, std::uintptr_t address, unsigned bytes, Access access) {
  const Clock& now = threads_[thread].now.clock;
  const std::uint32_t epoch = threads_[thread].events + 1;
  const auto follows = [&](const Clock& others) {
    for (unsigned i = 0; i < kThreads; ++i) {
      if (i != thread && others[i] > now[i]) return false;
    }
    return true;
  };
  bool is_ordered = true;
  for (std::uintptr_t at = address; at < address + bytes;) {
    const std::uintptr_t word = at & ~std::uintptr_t{7};
    const auto end = static_cast<unsigned>(std::min<std::uintptr_t>(address + bytes - word, 8));
    const auto mask = static_cast<std::uint8_t>((0xffU << (at - word)) & (0xffU >> (8 - end)));
    at = word + 8;
    Cell& own = cell(word, mask);
    for (std::size_t i = (word >> 3) * 0x9e3779b97f4a7c15 >> 48;
         cells_[i].generation == generation_; i = (i + 1) % cells_.size()) {
      const Cell& other = cells_[i];
      if (other.word != word || (other.mask & mask) == 0) continue;
      if (other.writer != thread && other.written > now[other.writer]) is_ordered = false;
      if (access == Access::write || access == Access::atomic_write) {
        is_ordered &= follows(other.read);
      }
      if (access == Access::read || access == Access::write) {
        is_ordered &= follows(other.atomic_written);
      }
      if (access == Access::write) is_ordered &= follows(other.atomic_read);
    }
    switch (access) {
      case Access::read:
        own.read[thread] = epoch;
        break;
      case Access::write:
        own.writer = static_cast<std::uint8_t>(thread);
        own.written = epoch;
        break;
      case Access::atomic_read:
        own.atomic_read[thread] = epoch;
        break;
      case Access::atomic_write:
        own.atomic_written[thread] = epoch;
        break;
    }
  }
  return is_ordered;
}

bool Memory::access(unsigned thread, std::uintptr_t address, unsigned bytes, bool is_write) {
  if (is_write) {
    // What was an atomic object here begins anew with the value that is being written.
    for (std::uintptr_t at = address; at < address + bytes; ++at) {
      const auto place = places_.find(at);
      if (place == places_.end()) continue;
      places_.erase(place);
    }
  }
  return check(thread, address, bytes, is_write ? Access::write : Access::read);
}

}  // namespace order

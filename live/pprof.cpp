#include "pprof.hpp"

#include <stdio.h>

#include <algorithm>
#include <string_view>

#include "encoded.hpp"
#include "symbols.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

class Pprof {
 public:
  void write(const Stacks& now, const PprofOptions& options) noexcept {
    static_cast<void>(string(""));
    value_type(1, "alloc_objects", "count");
    value_type(1, "alloc_space", "bytes");
    value_type(1, "inuse_objects", "count");
    value_type(1, "inuse_space", "bytes");
    refresh_modules();
    std::size_t count = 0;
    const Module* const all = modules(&count);
    for (std::size_t i = 0; i < count; ++i) mapping(i + 1, all[i]);
    for (const StackCopy& stack : now.all()) {
      if (options.threads != nullptr) {
        samples_by_thread(stack.sums, *options.threads);
      } else {
        sample(stack.sums,
               options.before == nullptr ? nullptr : options.before->find(stack.sums.id));
      }
    }
    if (options.threads != nullptr) heaps();
    profile_.number(9, wall_clock_ms() * 1'000'000);
    profile_.number(10, options.duration_ms * 1'000'000);
    value_type(11, "space", "bytes");
    profile_.number(12, allod_profile_interval());
    profile_.number(14, string(options.kind == PprofKind::heap ? "inuse_space" : "alloc_space"));
  }
  [[nodiscard]] Encoded& message() noexcept { return profile_; }

 private:
  struct Function {
    std::size_t name;
    std::uint64_t id;
  };
  struct Labels {
    std::uint32_t thread;
    std::uint64_t name;
    std::uint64_t number;
  };

  [[nodiscard]] std::uint64_t string(std::string_view text) noexcept {
    profile_.text(6, text);
    return strings_++;
  }
  // The same for a text that is written once. `index` is 0 before.
  [[nodiscard]] std::uint64_t string_once(std::uint64_t& index, std::string_view text) noexcept {
    if (index == 0) index = string(text);
    return index;
  }
  void value_type(unsigned field, const char* type, const char* unit) noexcept {
    part_.clear();
    const std::uint64_t names[] = {string(type), string(unit)};
    part_.number(1, names[0]).number(2, names[1]);
    profile_.message(field, part_);
  }
  void mapping(std::uint64_t id, const Module& module) noexcept {
    const std::uint64_t names[] = {string(module.path), string(module.build_id)};
    part_.clear();
    part_.number(1, id).number(2, module.from).number(3, module.to).number(4, module.offset);
    part_.number(5, names[0]).number(6, names[1]).number(7, 1).number(8, 1).number(9, 1);
    profile_.message(3, part_);
  }
  void sample(const allod_profile_stack_t& stack, const StackCopy* before) noexcept {
    const allod_profile_sum_t none{};
    const allod_profile_sum_t& live = before == nullptr ? none : before->sums.live;
    const allod_profile_sum_t& total = before == nullptr ? none : before->sums.total;
    // Differences may be negative, in two's complement.
    const std::uint64_t values[] = {stack.total.blocks - total.blocks,
                                    stack.total.bytes - total.bytes,
                                    stack.live.blocks - live.blocks, stack.live.bytes - live.bytes};
    if (std::all_of(values, values + 4, [](std::uint64_t value) { return value == 0; })) return;
    begin_sample(stack);
    end_sample(values);
  }
  // What is in use by thread; what was ever allocated, without.
  void samples_by_thread(const allod_profile_stack_t& stack, const ThreadSums& threads) noexcept {
    threads.split(stack,
                  [&](std::uint32_t thread, std::uint64_t blocks, std::uint64_t bytes) noexcept {
                    const std::uint64_t values[] = {0, 0, blocks, bytes};
                    begin_sample(stack);
                    if (thread != 0) label_thread(thread);
                    end_sample(values);
                  });
    const std::uint64_t values[] = {stack.total.blocks, stack.total.bytes, 0, 0};
    if (stack.total.bytes == 0) return;
    begin_sample(stack);
    end_sample(values);
  }
  void begin_sample(const allod_profile_stack_t& stack) noexcept {
    for (std::size_t i = 0; i < stack.depth; ++i) locate(stack.frames[i]);
    inner_.clear();
    for (std::size_t i = 0; i < stack.depth; ++i) inner_.varint(stack.frames[i]);
    sample_.clear();
    sample_.message(1, inner_);
  }
  void end_sample(const std::uint64_t (&values)[4]) noexcept {
    inner_.clear();
    for (const std::uint64_t value : values) inner_.varint(value);
    sample_.message(2, inner_);
    profile_.message(2, sample_);
  }
  void label(std::uint64_t key, std::uint64_t text) noexcept {
    part_.clear();
    part_.number(1, key).number(2, text);
    sample_.message(3, part_);
  }
  void label_thread(std::uint32_t thread) noexcept {
    const auto known = std::find_if(labelled_.begin(), labelled_.end(),
                                    [&](const Labels& row) { return row.thread == thread; });
    Labels labels{};
    if (known == labelled_.end()) {
      char name[16];
      char number[12];
      thread_name(thread, name);
      snprintf(number, sizeof number, "%u", thread);
      labels = {thread, string(name), string(number)};
      static_cast<void>(labelled_.push(labels));
    } else {
      labels = *known;
    }
    label(string_once(thread_key_, "thread"), labels.name);
    label(string_once(id_key_, "thread_id"), labels.number);
  }
  // First-class heaps have no samples: each is a sample of its own, as a function of its name.
  void heaps() noexcept {
    Table<allod_heap_row_t> rows;
    const std::size_t there = allod_heaps_get(nullptr, 0, sizeof(allod_heap_row_t));
    if (there == 0 || !rows.set_size(there)) return;
    const std::size_t count = allod_heaps_get(rows.begin(), there, sizeof(allod_heap_row_t));
    for (std::size_t i = 0; i < std::min(count, there); ++i) {
      const allod_heap_stats_t& figures = rows[i].figures;
      char name[64];
      snprintf(name, sizeof name, "heap %s", rows[i].name);
      const std::uint64_t names[] = {string(name), string(rows[i].name)};
      // Beside all addresses of places, which are their ids, and all numbers of functions.
      const std::uint64_t id = ~std::uint64_t{i};
      part_.clear();
      part_.number(1, id).number(2, names[0]).number(3, names[0]);
      profile_.message(5, part_);
      inner_.clear();
      inner_.number(1, id);
      location_.clear();
      location_.number(1, id).message(4, inner_);
      profile_.message(4, location_);
      inner_.clear();
      inner_.varint(id);
      sample_.clear();
      sample_.message(1, inner_);
      label(string_once(heap_key_, "heap"), names[1]);
      const std::uint64_t values[] = {0, 0, figures.live_blocks, figures.live};
      end_sample(values);
    }
  }
  // The id of a location is its address.
  void locate(std::uintptr_t address) noexcept {
    const auto found = std::lower_bound(located_.begin(), located_.end(), address);
    if (found != located_.end() && *found == address) return;
    const auto at = static_cast<std::size_t>(found - located_.begin());
    if (!located_.push(address)) return;
    std::rotate(located_.begin() + at, located_.end() - 1, located_.end());
    std::size_t count = 0;
    const Module* const all = modules(&count);
    location_.clear();
    location_.number(1, address);
    for (std::size_t i = 0; i < count; ++i) {
      if (address >= all[i].from && address < all[i].to) location_.number(2, i + 1);
    }
    location_.number(3, address - 1);
    find_places(
        address, [](const Place& place, void* self) { static_cast<Pprof*>(self)->line(place); },
        this);
    profile_.message(4, location_);
  }
  void line(const Place& place) noexcept {
    const std::uint64_t id = function(place);
    inner_.clear();
    inner_.number(1, id).number(2, place.line);
    location_.message(4, inner_);
  }
  [[nodiscard]] std::uint64_t function(const Place& place) noexcept {
    const auto found =
        std::lower_bound(functions_.begin(), functions_.end(), place.id,
                         [](const Function& row, std::size_t name) { return row.name < name; });
    if (found != functions_.end() && found->name == place.id) return found->id;
    const std::uint64_t id = functions_.size() + 1;
    const auto at = static_cast<std::size_t>(found - functions_.begin());
    if (functions_.push({place.id, id})) {
      std::rotate(functions_.begin() + at, functions_.end() - 1, functions_.end());
    }
    const std::uint64_t names[] = {string(place.function), string(place.file)};
    part_.clear();
    part_.number(1, id).number(2, names[0]).number(3, names[0]).number(4, names[1]);
    profile_.message(5, part_);
    return id;
  }

  Encoded profile_;
  Encoded part_;
  Encoded inner_;
  Encoded location_;
  Encoded sample_;
  std::uint64_t strings_ = 0;
  std::uint64_t thread_key_ = 0;
  std::uint64_t id_key_ = 0;
  std::uint64_t heap_key_ = 0;
  Table<Labels> labelled_;
  Table<std::uintptr_t> located_;
  Table<Function> functions_;
};

}  // namespace

bool write_pprof(const Stacks& now, const PprofOptions& options, evbuffer* to) noexcept {
  Pprof profile;
  profile.write(now, options);
  return !profile.message().failed() && compress(profile.message().all(), to);
}

bool write_folded(const Stacks& now, evbuffer* to) noexcept {
  for (const StackCopy& stack : now.all()) {
    if (stack.sums.live.bytes == 0) continue;
    const char* separator = "";
    for (std::size_t i = stack.sums.depth; i-- > 0;) {
      // Inlined functions come innermost first.
      constexpr std::size_t kMostInlined = 32;
      struct Names {
        std::string_view all[kMostInlined];
        std::size_t count = 0;
      } names;
      find_places(
          stack.sums.frames[i],
          [](const Place& place, void* context) {
            auto& found = *static_cast<Names*>(context);
            if (found.count < kMostInlined) found.all[found.count++] = place.function;
          },
          &names);
      while (names.count > 0) {
        const std::string_view name = names.all[--names.count];
        if (evbuffer_add_printf(to, "%s%.*s", separator, static_cast<int>(name.size()),
                                name.data()) < 0) {
          return false;
        }
        separator = ";";
      }
    }
    if (evbuffer_add_printf(to, " %llu\n", static_cast<unsigned long long>(stack.sums.live.bytes)) <
        0) {
      return false;
    }
  }
  return true;
}

}  // namespace allod::live

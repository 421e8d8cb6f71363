#include "otlp.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>

#include "encoded.hpp"
#include "figures.hpp"
#include "symbols.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

// Field numbers are those of opentelemetry/proto/profiles/v1development/profiles.proto. All
// profiles share a dictionary. In each of its tables, entry 0 stands for nothing.
class Otlp {
 public:
  void write(const Stacks& now, const Stacks& before, const ThreadSums& threads,
             const char* service, std::uint64_t duration_ms) noexcept {
    for (const unsigned table : {kMappings, kLocations, kFunctions, kLinks, kAttributes, kStacks}) {
      part_.clear();
      dictionary_.message(table, part_);
    }
    static_cast<void>(string(""));
    refresh_modules();
    std::size_t count = 0;
    const Module* const all = modules(&count);
    for (std::size_t i = 0; i < count; ++i) mapping(all[i]);
    for (const StackCopy& stack : now.all()) add_stack(stack.sums);
    scope_.clear();
    part_.clear();
    part_.text(1, "allod").text(2, allod_version());
    scope_.message(1, part_);
    const std::uint64_t end_ns = wall_clock_ms() * 1'000'000;
    const std::uint64_t duration_ns = duration_ms * 1'000'000;
    for (const bool is_bytes : {true, false}) {
      begin_profile(is_bytes ? "inuse_space" : "inuse_objects", is_bytes);
      for (std::size_t i = 0; i < now.all().size(); ++i) {
        threads.split(now.all()[i].sums, [&](std::uint32_t thread, std::uint64_t blocks,
                                             std::uint64_t bytes) noexcept {
          sample(i + 1, is_bytes ? bytes : blocks, thread);
        });
      }
      end_profile(end_ns, 0);
      begin_profile(is_bytes ? "alloc_space" : "alloc_objects", is_bytes);
      for (std::size_t i = 0; i < now.all().size(); ++i) {
        const allod_profile_stack_t& stack = now.all()[i].sums;
        const StackCopy* const old = before.find(stack.id);
        const allod_profile_sum_t none{};
        const allod_profile_sum_t& then = old == nullptr ? none : old->sums.total;
        // Both may have been reset meanwhile.
        const std::uint64_t value = is_bytes ? above(stack.total.bytes, then.bytes)
                                             : above(stack.total.blocks, then.blocks);
        if (value != 0) sample(i + 1, value, 0);
      }
      end_profile(end_ns - duration_ns, duration_ns);
    }
    finish(service);
  }
  [[nodiscard]] Encoded& message() noexcept { return message_; }
  [[nodiscard]] bool failed() const noexcept {
    return message_.failed() || dictionary_.failed() || scope_.failed() || profile_.failed();
  }

 private:
  enum TableField : unsigned {
    kMappings = 1,
    kLocations = 2,
    kFunctions = 3,
    kLinks = 4,
    kStrings = 5,
    kAttributes = 6,
    kStacks = 7
  };
  struct Indexed {
    std::uint64_t what;
    std::uint64_t index;
  };

  // The index of `what` in a table; 0 if it is not there. Tables are sorted.
  [[nodiscard]] static std::uint64_t find(const Table<Indexed>& table, std::uint64_t what,
                                          std::size_t* place) noexcept {
    const Indexed* const found = std::lower_bound(
        table.begin(), table.end(), what,
        [](const Indexed& row, std::uint64_t wanted) { return row.what < wanted; });
    *place = static_cast<std::size_t>(found - table.begin());
    return found != table.end() && found->what == what ? found->index : 0;
  }
  static std::uint64_t add(Table<Indexed>& table, std::uint64_t what, std::size_t place) noexcept {
    const std::uint64_t index = table.size() + 1;
    if (!table.push({what, index})) return 0;
    std::rotate(table.begin() + place, table.end() - 1, table.end());
    return index;
  }

  [[nodiscard]] std::uint64_t string(std::string_view text) noexcept {
    dictionary_.text(kStrings, text);
    return strings_++;
  }
  void mapping(const Module& module) noexcept {
    const std::uint64_t file = string(module.path);
    part_.clear();
    part_.number(1, module.from).number(2, module.to).number(3, module.offset).number(4, file);
    if (module.build_id[0] != '\0') {
      const std::uint64_t id = attribute("process.executable.build_id.gnu", module.build_id);
      inner_.clear();
      inner_.varint(id);
      part_.message(5, inner_);
    }
    dictionary_.message(kMappings, part_);
  }
  // Returns its index. Uses no buffer but value_ and pair_.
  [[nodiscard]] std::uint64_t attribute(std::string_view key, std::string_view text) noexcept {
    value_.clear();
    value_.text(1, text);
    return attribute_of_value(key);
  }
  [[nodiscard]] std::uint64_t attribute(std::string_view key, std::uint64_t number) noexcept {
    value_.clear();
    value_.number(3, number);
    return attribute_of_value(key);
  }
  [[nodiscard]] std::uint64_t attribute_of_value(std::string_view key) noexcept {
    const std::uint64_t name = string(key);
    pair_.clear();
    pair_.number(1, name).message(2, value_);
    dictionary_.message(kAttributes, pair_);
    return ++attributes_;
  }

  void add_stack(const allod_profile_stack_t& stack) noexcept {
    stack_.clear();
    for (std::size_t i = 0; i < stack.depth; ++i) stack_.varint(location(stack.frames[i]));
    part_.clear();
    part_.message(1, stack_);
    dictionary_.message(kStacks, part_);
  }
  [[nodiscard]] std::uint64_t location(std::uintptr_t address) noexcept {
    std::size_t place = 0;
    if (const std::uint64_t known = find(located_, address, &place)) return known;
    std::size_t count = 0;
    const Module* const all = modules(&count);
    location_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      if (address >= all[i].from && address < all[i].to) location_.number(1, i + 1);
    }
    location_.number(2, address - 1);
    find_places(
        address, [](const Place& it, void* self) { static_cast<Otlp*>(self)->line(it); }, this);
    dictionary_.message(kLocations, location_);
    return add(located_, address, place);
  }
  void line(const Place& place) noexcept {
    const std::uint64_t function = function_of(place);
    inner_.clear();
    inner_.number(1, function).number(2, place.line);
    location_.message(3, inner_);
  }
  [[nodiscard]] std::uint64_t function_of(const Place& place) noexcept {
    std::size_t at = 0;
    if (const std::uint64_t known = find(functions_, place.id, &at)) return known;
    const std::uint64_t names[] = {string(place.function), string(place.file)};
    part_.clear();
    part_.number(1, names[0]).number(2, names[0]).number(3, names[1]);
    dictionary_.message(kFunctions, part_);
    return add(functions_, place.id, at);
  }

  void begin_profile(const char* type, bool is_bytes) noexcept {
    profile_.clear();
    value_type(1, type, is_bytes ? "bytes" : "count");
  }
  void value_type(unsigned field, const char* type, const char* unit) noexcept {
    const std::uint64_t names[] = {string(type), string(unit)};
    part_.clear();
    part_.number(1, names[0]).number(2, names[1]);
    profile_.message(field, part_);
  }
  void sample(std::size_t stack, std::uint64_t value, std::uint32_t thread) noexcept {
    part_.clear();
    part_.number(1, stack);
    if (thread != 0) {
      inner_.clear();
      const std::uint64_t first = attributes_of(thread);
      inner_.varint(first);
      inner_.varint(first + 1);
      part_.message(2, inner_);
    }
    inner_.clear();
    inner_.varint(value);
    part_.message(4, inner_);
    profile_.message(2, part_);
  }
  // The first of the two of a thread.
  [[nodiscard]] std::uint64_t attributes_of(std::uint32_t thread) noexcept {
    for (const Indexed& known : threads_) {
      if (known.what == thread) return known.index;
    }
    char name[16];
    thread_name(thread, name);
    const std::uint64_t first = attribute("thread.id", std::uint64_t{thread});
    static_cast<void>(attribute("thread.name", std::string_view{name}));
    static_cast<void>(threads_.push({thread, first}));
    return first;
  }
  void end_profile(std::uint64_t begin_ns, std::uint64_t duration_ns) noexcept {
    profile_.fixed(3, begin_ns).number(4, duration_ns);
    value_type(5, "space", "bytes");
    profile_.number(6, allod_profile_interval());
    char id[16];
    if (getrandom(id, sizeof id, GRND_NONBLOCK) == static_cast<ssize_t>(sizeof id))
      profile_.text(7, {id, sizeof id});
    scope_.message(2, profile_);
  }

  void resource_attribute(std::string_view key) noexcept {
    pair_.clear();
    pair_.text(1, key).message(2, value_);
    part_.message(1, pair_);
  }
  void finish(const char* service) noexcept {
    char host[256] = {};
    static_cast<void>(gethostname(host, sizeof host - 1));
    part_.clear();
    value_.clear();
    value_.text(1, service);
    resource_attribute("service.name");
    value_.clear();
    value_.text(1, host);
    resource_attribute("host.name");
    value_.clear();
    value_.number(3, static_cast<std::uint64_t>(getpid()));
    resource_attribute("process.pid");
    inner_.clear();
    inner_.message(1, part_).message(2, scope_);
    message_.message(1, inner_).message(2, dictionary_);
  }

  Encoded message_;
  Encoded dictionary_;
  Encoded scope_;
  Encoded profile_;
  Encoded part_;
  Encoded inner_;
  Encoded location_;
  Encoded stack_;
  Encoded value_;
  Encoded pair_;
  std::uint64_t strings_ = 0;
  std::uint64_t attributes_ = 0;
  Table<Indexed> located_;
  Table<Indexed> functions_;
  Table<Indexed> threads_;  // in the order in which they came
};

}  // namespace

bool write_otlp(const Stacks& now, const Stacks& before, const ThreadSums& threads,
                const char* service, std::uint64_t duration_ms, evbuffer* to) noexcept {
  Otlp profile;
  profile.write(now, before, threads, service, duration_ms);
  return !profile.failed() && compress(profile.message().all(), to);
}

}  // namespace allod::live

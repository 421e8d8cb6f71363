#include "pprof.hpp"

#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "symbols.hpp"
#include "system.hpp"

namespace allod::live {

namespace {

// Encodes protocol buffers (https://protobuf.dev/programming-guides/encoding). Field numbers are
// those of pprof's profile.proto.
class Encoded {
 public:
  Encoded& number(unsigned field, std::uint64_t value) noexcept {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Encoded& text(unsigned field, std::string_view text) noexcept {
    varint(std::uint64_t{field} << 3 | 2);
    varint(text.size());
    bytes(text.data(), text.size());
    return *this;
  }
  Encoded& message(unsigned field, const Encoded& inner) noexcept {
    return text(field, {inner.bytes_.begin(), inner.bytes_.size()});
  }
  void varint(std::uint64_t value) noexcept {
    char out[10];
    std::size_t length = 0;
    do {
      const bool more = value >= 0x80;
      out[length++] = static_cast<char>((value & 0x7f) | (more ? 0x80 : 0));
      value >>= 7;
    } while (value != 0);
    bytes(out, length);
  }
  void clear() noexcept { bytes_.clear(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  [[nodiscard]] Table<char>& all() noexcept { return bytes_; }

 private:
  void bytes(const char* from, std::size_t size) noexcept {
    const std::size_t before = bytes_.size();
    if (before + size > room_) {
      room_ = (before + size) * 2;
      if (!bytes_.reserve(room_)) {
        failed_ = true;
        room_ = 0;
      }
    }
    if (failed_ || !bytes_.set_size(before + size)) {
      failed_ = true;
      return;
    }
    if (size != 0) memcpy(bytes_.begin() + before, from, size);
  }

  Table<char> bytes_;
  std::size_t room_ = 0;
  bool failed_ = false;
};

class Pprof {
 public:
  void write(const Stacks& now, const Stacks* before, PprofKind kind,
             std::uint64_t duration_ms) noexcept {
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
      sample(stack.sums, before == nullptr ? nullptr : before->find(stack.sums.id));
    }
    profile_.number(9, wall_clock_ms() * 1'000'000);
    profile_.number(10, duration_ms * 1'000'000);
    value_type(11, "space", "bytes");
    profile_.number(12, allod_profile_interval());
    profile_.number(14, string(kind == PprofKind::heap ? "inuse_space" : "alloc_space"));
  }
  [[nodiscard]] Encoded& message() noexcept { return profile_; }

 private:
  struct Function {
    std::size_t name;
    std::uint64_t id;
  };

  [[nodiscard]] std::uint64_t string(std::string_view text) noexcept {
    profile_.text(6, text);
    return strings_++;
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
    for (std::size_t i = 0; i < stack.depth; ++i) locate(stack.frames[i]);
    inner_.clear();
    for (std::size_t i = 0; i < stack.depth; ++i) inner_.varint(stack.frames[i]);
    part_.clear();
    part_.message(1, inner_);
    inner_.clear();
    for (const std::uint64_t value : values) inner_.varint(value);
    part_.message(2, inner_);
    profile_.message(2, part_);
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
  std::uint64_t strings_ = 0;
  Table<std::uintptr_t> located_;
  Table<Function> functions_;
};

bool compress(Table<char>& from, evbuffer* to) noexcept {
  z_stream stream{};
  stream.zalloc = [](void*, uInt items, uInt size) { return allocate(std::size_t{items} * size); };
  stream.zfree = [](void*, void* block) { release(block); };
  constexpr int kGzip = 16;
  if (deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    return false;
  }
  stream.next_in = reinterpret_cast<Bytef*>(from.begin());
  stream.avail_in = static_cast<uInt>(from.size());
  int result = Z_OK;
  bool failed = false;
  while (result == Z_OK && !failed) {
    unsigned char out[16384];
    stream.next_out = out;
    stream.avail_out = sizeof out;
    result = deflate(&stream, Z_FINISH);
    failed = evbuffer_add(to, out, sizeof out - stream.avail_out) != 0;
  }
  deflateEnd(&stream);
  return result == Z_STREAM_END && !failed;
}

}  // namespace

bool write_pprof(const Stacks& now, const Stacks* before, PprofKind kind, std::uint64_t duration_ms,
                 evbuffer* to) noexcept {
  Pprof profile;
  profile.write(now, before, kind, duration_ms);
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

#include "profile/functions.hpp"

#include <errno.h>
#include <string.h>

#include <iterator>

#include "python/frames.hpp"

namespace allod::profile {

namespace {

// Never freed.
struct KnownText {
  KnownText* next;
  std::uint64_t hash;
  std::size_t length;
  char text[1];  // zero-terminated

  [[nodiscard]] std::string_view view() const noexcept { return {text, length}; }
};
struct KnownFunction {
  KnownFunction* next;
  std::uint64_t hash;
  const KnownText* name;
  const KnownText* file;
  std::uint32_t line;
  std::uint32_t number;
};

constexpr std::size_t kTogether = 1024;
constexpr std::size_t kGroups = 128;
// No address of a process is that large.
constexpr auto kFirst = static_cast<std::uintptr_t>(
    kAddressesAbound ? std::uint64_t{6} << 60 : (std::uint64_t{1} << 32) - kTogether * kGroups);

// Changed under the book's lock.
constinit Buckets<KnownText> texts;
constinit Buckets<KnownFunction> functions;
constinit std::atomic<std::uint32_t> function_count{0};
// By number.
constinit const KnownFunction** groups[kGroups];

// Numbers of frames that were met lately. A word holds the upper bits of a frame's identity, and
// its number below: no part of it can be another's.
class Recent {
 public:
  // kNone if it is not known.
  [[nodiscard]] std::uint32_t number_of(std::uint64_t identity) const noexcept {
    const std::atomic<std::uint64_t>* const words = words_.load(std::memory_order_acquire);
    if (words == nullptr) return kNone;
    const std::uint64_t word = words[identity % kWords].load(std::memory_order_relaxed);
    return (word ^ identity) > kNumbers ? kNone : static_cast<std::uint32_t>(word & kNumbers);
  }
  // Requires the book's lock.
  void note(std::uint64_t identity, std::uint32_t number) noexcept {
    std::atomic<std::uint64_t>* words = words_.load(std::memory_order_relaxed);
    if (words == nullptr) {
      words = static_cast<std::atomic<std::uint64_t>*>(
          engine().space().allocate_metadata(kWords * sizeof *words));
      if (words == nullptr) return;
      words_.store(words, std::memory_order_release);
    }
    words[identity % kWords].store((identity & ~kNumbers) | number, std::memory_order_relaxed);
  }

  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

 private:
  static constexpr std::uint64_t kNumbers = kTogether * kGroups - 1;
  static_assert((kNumbers & (kNumbers + 1)) == 0);
  static constexpr std::size_t kWords = 8192;

  std::atomic<std::atomic<std::uint64_t>*> words_{nullptr};
};
constinit Recent recent;

std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = text.size();
  while (!text.empty()) {
    std::uint64_t word = 0;
    const std::size_t bytes = text.size() < sizeof word ? text.size() : sizeof word;
    memcpy(&word, text.data(), bytes);
    hash = (hash ^ word) * kMix;
    hash ^= hash >> 29;
    text.remove_prefix(bytes);
  }
  return hash * kMix;
}

template <class Known>
Known*& next_of(Known& known) noexcept {
  return known.next;
}
template <class Known>
std::uint64_t hash_in(Known& known) noexcept {
  return known.hash;
}

// Null if memory is exhausted.
const KnownText* keep(std::string_view text) noexcept {
  const std::uint64_t hash = hash_of(text);
  if (!texts.make_room(next_of<KnownText>, hash_in<KnownText>)) return nullptr;
  KnownText*& list = texts.at(hash);
  for (KnownText* known = list; known != nullptr; known = known->next) {
    if (known->hash == hash && known->view() == text) return known;
  }
  auto* const known = static_cast<KnownText*>(
      engine().space().allocate_metadata(offsetof(KnownText, text) + text.size() + 1));
  if (known == nullptr) return nullptr;
  known->hash = hash;
  known->length = text.size();
  memcpy(known->text, text.data(), text.size());
  known->text[text.size()] = '\0';
  known->next = list;
  list = known;
  ++texts.entries;
  return known;
}

// The group that the next number is in. Null if memory, or all numbers, are used up.
const KnownFunction** next_group(std::uint32_t number) noexcept {
  const std::size_t group = number / kTogether;
  if (group == kGroups) return nullptr;
  if (groups[group] == nullptr) {
    groups[group] = static_cast<const KnownFunction**>(
        engine().space().allocate_metadata(kTogether * sizeof(KnownFunction*)));
  }
  return groups[group];
}

// Requires the lock. kNone if memory is exhausted.
std::uint32_t number_of(const python::Names& names) noexcept {
  const KnownText* const name = keep(names.function);
  const KnownText* const file = keep(names.file);
  if (name == nullptr || file == nullptr) return Recent::kNone;
  const std::uint64_t hash = (name->hash ^ (file->hash + names.line) * kMix) * kMix;
  if (!functions.make_room(next_of<KnownFunction>, hash_in<KnownFunction>)) return Recent::kNone;
  KnownFunction*& list = functions.at(hash);
  for (KnownFunction* known = list; known != nullptr; known = known->next) {
    if (known->name == name && known->file == file && known->line == names.line) {
      return known->number;
    }
  }
  const std::uint32_t number = function_count.load(std::memory_order_relaxed);
  const KnownFunction** const group = next_group(number);
  if (group == nullptr) return Recent::kNone;
  auto* const known =
      static_cast<KnownFunction*>(engine().space().allocate_metadata(sizeof(KnownFunction)));
  if (known == nullptr) return Recent::kNone;
  *known = {list, hash, name, file, names.line, number};
  list = known;
  ++functions.entries;
  group[number % kTogether] = known;
  function_count.store(number + 1, std::memory_order_release);
  return number;
}

// The number of the frame that `from` has found. kNone if memory is exhausted, or its names are not
// there.
std::uint32_t number_of(python::Frames& from, std::uint64_t identity) noexcept {
  const std::uint32_t known = recent.number_of(identity);
  python::Names names;
  if (known != Recent::kNone || !from.describe(&names)) return known;
  LockGuard lock{book.lock};
  const std::uint32_t number = number_of(names);
  if (number != Recent::kNone) recent.note(identity, number);
  return number;
}

// Slabs can be read. Those of the hardened library may be closed in part.
bool is_in_a_slab(Address page) noexcept {
  if constexpr (Policy::kBlockStates) return false;
  return space::is_slab(engine().space().map().tag_of(page));
}

// Adds functions up to one that C code has called. False if there is none.
bool add_run(python::Frames& from, Trace* trace) noexcept {
  python::Frame frame;
  bool is_any = false;
  while (trace->depth < Trace::kDepth && from.next(&frame)) {
    const std::uint32_t number = number_of(from, frame.identity);
    if (number != Recent::kNone) trace->add(kFirst + number);
    is_any = true;
    if (frame.is_entry) break;
  }
  return is_any;
}

}  // namespace

[[gnu::noinline]] void add_functions(const Stack& stack, Trace* trace) noexcept {
  python::Frames functions_of_thread{&is_in_a_slab};
  for (std::uint32_t i = 0; i < stack.depth; ++i) {
    const std::uintptr_t frame = stack.frames[i];
    if (!python::is_loop(frame) || !add_run(functions_of_thread, trace)) {
      trace->add(frame);
    } else if (i + 1 < stack.depth && python::is_generated(stack.frames[i + 1])) {
      ++i;
    }
  }
  // Those whose C frames lie beyond the limit of depth.
  while (add_run(functions_of_thread, trace)) continue;
}

void look_for_functions(const Stack& stack) noexcept {
  python::look_for_interpreter(stack.frames, stack.depth);
}

bool find_function(std::uintptr_t frame, Function* function) noexcept {
  if (frame < kFirst || frame - kFirst >= function_count.load(std::memory_order_acquire)) {
    return false;
  }
  const std::size_t number = frame - kFirst;
  const KnownFunction& known = *groups[number / kTogether][number % kTogether];
  *function = {known.name->text, known.file->text, known.line};
  return true;
}

void write_functions(Text& out) noexcept {
  const std::uint32_t count = function_count.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    const KnownFunction& known = *groups[i / kTogether][i % kTogether];
    out << "# frame " << Hex{kFirst + i} << " " << known.line << " " << Quoted{known.name->view()}
        << " " << Quoted{known.file->view()} << "\n";
  }
}

}  // namespace allod::profile

extern "C" int allod_profile_function_get(uintptr_t frame, allod_profile_function_t* function,
                                          size_t size) noexcept {
  allod::profile::Function found{};
  if (function == nullptr || size != sizeof *function) return EINVAL;
  if (!allod::profile::find_function(frame, &found)) return ENOENT;
  *function = {found.name, found.file, found.line};
  return 0;
}

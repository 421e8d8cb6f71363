// Free spans by size, age and state.
#pragma once

#include "allod/space/page_source.hpp"

namespace allod::space {

// Each free span is in the bins of its state: those of its node, or of its source. Dirty spans
// that age are also in a list by age: a shared one, or that of a source with its own delay. Other
// dirty spans stay until they are reused.
//
// Guarded by the space's lock, except for thread-safe functions. The space maintains the page map.
// Constant-initialised.
class FreeSpans {
 public:
  // By size. Separate, since most of it is never touched.
  struct Bins {
    SpanBins dirty;
    SpanBins clean[2];  // by the filling of their region
  };

  constexpr FreeSpans() noexcept = default;
  FreeSpans(const FreeSpans&) = delete;
  FreeSpans& operator=(const FreeSpans&) = delete;

  // Called once, before anything else, for node 0, and for each other node before a span of it is
  // inserted; `bins` are zeros.
  void start(Node node, Bins* bins) noexcept { bins_[node] = bins; }
  [[nodiscard]] bool has(Node node) const noexcept { return bins_[node] != nullptr; }
  // Whether it is another node than `own`, and was started.
  [[nodiscard]] bool has_other(std::uint32_t node, Node own) const noexcept {
    return node != own && has(static_cast<Node>(node));
  }
  [[nodiscard]] bool is_started() const noexcept { return has(0); }

  ALLOD_INLINE void insert(Span* span) noexcept {
    with_bins(*span, [&](auto& bins) noexcept { bins.insert(span); });
    if (span->state == SpanState::dirty && !ages(*span)) {
      insert_in_source(span);
    } else if (span->state == SpanState::dirty) {
      insert_by_age(by_age_, span);
      add_dirty(span->size.bytes());
    } else {
      clean_bytes_ += span->size.bytes();
    }
  }
  ALLOD_HOT void remove(Span* span) noexcept {
    with_bins(*span, [&](auto& bins) noexcept { bins.remove(span); });
    if (span->state == SpanState::dirty && !ages(*span)) {
      remove_from_source(span);
    } else if (span->state == SpanState::dirty) {
      by_age_.remove(span);
      add_dirty(-span->size.bytes());
    } else {
      clean_bytes_ -= span->size.bytes();
    }
  }
  // For a dirty span in a list by age.
  [[nodiscard]] bool is_oldest(const Span& span) noexcept { return list_of(span).last() == &span; }
  void make_oldest(Span* span) noexcept {
    list_of(*span).remove(span);
    list_of(*span).push_back(span);
  }

  // Of a node that was started. The filling does not matter for memory that is present.
  [[nodiscard]] SpanBins& dirty(Node node) noexcept { return bins_[node]->dirty; }
  [[nodiscard]] SpanBins& clean(Node node, Filling filling) noexcept {
    return bins_[node]->clean[static_cast<unsigned>(filling)];
  }

  // --- purges --------------------------------------------------------------------------

  // Whether the memory of a dirty span is purged by the shared delay and budget.
  [[nodiscard]] static bool ages(const Span& span) noexcept {
    const PageSource* const source = span.region->source;
    return source == nullptr || source->ages();
  }
  // Before a span becomes dirty that was last used at `freed_ms`.
  void note_older(std::uint32_t freed_ms) noexcept {
    const std::uint32_t known = none_before_ms_.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(freed_ms - known) >= 0) return;
    none_before_ms_.store(freed_ms, std::memory_order_relaxed);
  }
  // Before a span of that size becomes dirty.
  void note_freed(Slices size) noexcept {
    last_freed_bytes_.store(size.bytes(), std::memory_order_relaxed);
  }
  // Whether a span may have been free for `delay_ms`, or more than `budget` bytes are dirty.
  // Thread-safe, approximate.
  [[nodiscard]] bool may_have_due(std::uint32_t now_ms, std::uint32_t delay_ms,
                                  std::size_t budget) const noexcept {
    const bool may_be_due = now_ms - none_before_ms_.load(std::memory_order_relaxed) >= delay_ms;
    return may_be_due || dirty_bytes_above(budget) != 0;
  }
  // The span that was freed first, if it has been free for `delay_ms`, or more than `budget` bytes
  // are dirty; otherwise null. In the latter case, lowers `*limit` to the bytes above the budget.
  [[nodiscard]] Span* oldest_due(std::uint32_t now_ms, std::uint32_t delay_ms, std::size_t budget,
                                 std::size_t* limit) noexcept {
    Span* const span = by_age_.last();
    none_before_ms_.store(span != nullptr ? span->freed_ms : now_ms, std::memory_order_relaxed);
    if (span == nullptr) return nullptr;
    if (now_ms - span->freed_ms < delay_ms) {
      const std::size_t above = dirty_bytes_above(budget);
      if (above == 0) return nullptr;
      if (above < *limit) *limit = above;
    }
    return span;
  }
  // The same for sources with their own delays; `all` ignores these. Checked sources go to the end
  // of the list, so that each has its turn.
  [[nodiscard]] Span* delayed_due(std::uint32_t now_ms, bool all) noexcept {
    PageSource* const last = delayed_.last();
    for (std::uint32_t look = 0; all || look < kDelayedLooks; ++look) {
      PageSource* const source = delayed_.first();
      if (source == nullptr) return nullptr;
      if (all || due_in(*source, now_ms) == 0) return source->by_age.last();
      delayed_.remove(source);
      delayed_.push_back(source);
      if (source == last) return nullptr;
    }
    return nullptr;
  }
  // Milliseconds until the oldest span has been free for `delay_ms`, or until the next source with
  // its own delay is due. The largest value if nothing is dirty.
  [[nodiscard]] std::uint32_t next_due_in(std::uint32_t now_ms,
                                          std::uint32_t delay_ms) const noexcept {
    const Span* const oldest = by_age_.last();
    return oldest == nullptr ? ~0U : due_in(*oldest, now_ms, delay_ms);
  }
  [[nodiscard]] std::uint32_t next_delayed_in(std::uint32_t now_ms) const noexcept {
    std::uint32_t least = ~0U;
    std::uint32_t looks = kDelayedLooks;
    for (const PageSource* source = delayed_.first(); source != nullptr && looks-- > 0;
         source = DelayedList::next(source)) {
      const std::uint32_t in = due_in(*source, now_ms);
      if (in < least) least = in;
    }
    return least;
  }

  // --- figures -------------------------------------------------------------------------

  // Bytes in spans of the shared delay. Thread-safe, approximate.
  [[nodiscard]] std::size_t dirty_bytes() const noexcept {
    return dirty_bytes_.load(std::memory_order_relaxed);
  }
  // See Space::dirty_bytes_above.
  [[nodiscard]] std::size_t dirty_bytes_above(std::size_t budget) const noexcept {
    const std::size_t last = last_freed_bytes_.load(std::memory_order_relaxed);
    const std::size_t kept = last > budget ? last : budget;
    const std::size_t dirty = dirty_bytes();
    return dirty > kept ? dirty - kept : 0;
  }
  // Dirty bytes in sources with their own delays. Thread-safe, approximate.
  [[nodiscard]] std::size_t delayed_bytes() const noexcept {
    return delayed_bytes_.load(std::memory_order_relaxed);
  }
  // Dirty bytes that are never purged.
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  [[nodiscard]] std::size_t clean_bytes() const noexcept { return clean_bytes_; }

  // For checks: visits each dirty span in a list by age.
  template <class Visit>
  void for_each_by_age(Visit&& visit) const noexcept {
    const auto visit_all = [&](const SpanAgeList& list) noexcept {
      for (const Span* s = list.first(); s != nullptr; s = SpanAgeList::next(s)) visit(*s);
    };
    visit_all(by_age_);
    for (const PageSource* source = delayed_.first(); source != nullptr;
         source = DelayedList::next(source)) {
      always_check(!source->by_age.empty(), "a heap without dirty spans waits for its delay");
      visit_all(source->by_age);
    }
  }

 private:
  // Sources with their own delays that are checked in one call.
  static constexpr std::uint32_t kDelayedLooks = 16;

  // Calls `use` with the bins of a free span.
  template <class Use>
  void with_bins(const Span& span, Use&& use) noexcept {
    const bool is_dirty = span.state == SpanState::dirty;
    if (PageSource* const source = span.region->source) {
      return use(is_dirty ? source->dirty : source->clean);
    }
    const Node node = span.region->node;
    use(is_dirty ? dirty(node) : clean(node, span.region->filling));
  }
  [[nodiscard]] SpanAgeList& list_of(const Span& span) noexcept {
    PageSource* const source = span.region->source;
    return source != nullptr ? source->by_age : by_age_;
  }
  static void insert_by_age(SpanAgeList& list, Span* span) noexcept {
    const Span* const oldest = list.last();
    const bool is_oldest =
        oldest != nullptr && static_cast<std::int32_t>(span->freed_ms - oldest->freed_ms) < 0;
    is_oldest ? list.push_back(span) : list.push_front(span);
  }
  // For dirty spans without the shared delay.
  ALLOD_NOINLINE void insert_in_source(Span* span) noexcept {
    PageSource& source = *span->region->source;
    if (!source.ages_alone()) {
      kept_bytes_ += span->size.bytes();
      return;
    }
    if (source.by_age.empty()) delayed_.push_front(&source);
    insert_by_age(source.by_age, span);
    delayed_bytes_.store(delayed_bytes() + span->size.bytes(), std::memory_order_relaxed);
  }
  ALLOD_NOINLINE void remove_from_source(Span* span) noexcept {
    PageSource& source = *span->region->source;
    if (!source.ages_alone()) {
      kept_bytes_ -= span->size.bytes();
      return;
    }
    source.by_age.remove(span);
    if (source.by_age.empty()) delayed_.remove(&source);
    delayed_bytes_.store(delayed_bytes() - span->size.bytes(), std::memory_order_relaxed);
  }
  void add_dirty(std::size_t bytes) noexcept {
    dirty_bytes_.store(dirty_bytes() + bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] static std::uint32_t due_in(const Span& oldest, std::uint32_t now_ms,
                                            std::uint32_t delay_ms) noexcept {
    const std::uint32_t age = now_ms - oldest.freed_ms;
    return age >= delay_ms ? 0 : delay_ms - age;
  }
  [[nodiscard]] static std::uint32_t due_in(const PageSource& source,
                                            std::uint32_t now_ms) noexcept {
    return due_in(*source.by_age.last(), now_ms, source.wishes.delay_ms);
  }

  Bins* bins_[kMostNodes] = {};
  SpanAgeList by_age_;  // freed last first
  // Size of the span that became dirty last.
  std::atomic<std::size_t> last_freed_bytes_{0};
  DelayedList delayed_;  // sources with their own delays, and dirty spans
  std::atomic<std::size_t> delayed_bytes_{0};
  std::size_t kept_bytes_ = 0;
  std::size_t clean_bytes_ = 0;
  // No dirty span that ages was freed earlier, at least not by more than a wait for the lock or
  // half a delay: spans that were freed with an age may be listed out of order.
  std::atomic<std::uint32_t> none_before_ms_{0};
  std::atomic<std::size_t> dirty_bytes_{0};
};

}  // namespace allod::space

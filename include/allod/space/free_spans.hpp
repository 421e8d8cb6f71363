// Free spans by size, age and state.
#pragma once

#include "allod/space/page_source.hpp"

namespace allod::space {

// Each free span is in the bins of its state, everybody's or those of its source. Of the dirty
// ones, those that age are in a list by age as well: one for everybody, one for each source with a
// delay of its own. The others are kept until somebody uses them.
//
// Guarded by the space's lock, but for what is thread-safe. The page map is the space's to keep.
// Constant-initialised.
class FreeSpans {
 public:
  // By size; apart, since most of it is never touched.
  struct Bins {
    SpanBins dirty;
    SpanBins clean[2];  // by the filling of their region
  };

  constexpr FreeSpans() noexcept = default;
  FreeSpans(const FreeSpans&) = delete;
  FreeSpans& operator=(const FreeSpans&) = delete;

  // Called once, before anything else; `bins` are zeros.
  void start(Bins* bins) noexcept { bins_ = bins; }
  [[nodiscard]] bool is_started() const noexcept { return bins_ != nullptr; }

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
  // Of a dirty span in a list by age.
  void make_oldest(Span* span) noexcept {
    PageSource* const source = span->region->source;
    SpanAgeList& list = source != nullptr ? source->by_age : by_age_;
    list.remove(span);
    list.push_back(span);
  }

  // Everybody's. Where memory is present, it does not matter in what pages.
  [[nodiscard]] SpanBins& dirty() noexcept { return bins_->dirty; }
  [[nodiscard]] SpanBins& clean(Filling filling) noexcept {
    return bins_->clean[static_cast<unsigned>(filling)];
  }

  // --- what is to be purged
  // -----------------------------------------------------------------------

  // Will the memory of a dirty span be purged some day, as everybody's is?
  [[nodiscard]] static bool ages(const Span& span) noexcept {
    const PageSource* const source = span.region->source;
    return source == nullptr || source->ages();
  }
  // A span becomes dirty that nobody has used since then.
  void note_older(std::uint32_t freed_ms) noexcept {
    const std::uint32_t known = none_before_ms_.load(std::memory_order_relaxed);
    if (static_cast<std::int32_t>(freed_ms - known) >= 0) return;
    none_before_ms_.store(freed_ms, std::memory_order_relaxed);
  }
  // A span of that size becomes dirty.
  void note_freed(Slices size) noexcept {
    last_freed_bytes_.store(size.bytes(), std::memory_order_relaxed);
  }
  // May a span have been free for `delay_ms`, or are more than `budget` bytes dirty? Thread-safe,
  // approximate.
  [[nodiscard]] bool may_have_due(std::uint32_t now_ms, std::uint32_t delay_ms,
                                  std::size_t budget) const noexcept {
    const bool may_be_due = now_ms - none_before_ms_.load(std::memory_order_relaxed) >= delay_ms;
    return may_be_due || dirty_bytes_above(budget) != 0;
  }
  // The span that was freed first, when it has been free for `delay_ms`, or more than `budget`
  // bytes are dirty; `*limit` is lowered then to what is above. Else null.
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
  // The same for sources with a delay of their own; `all`: whatever that says. Those that are
  // looked at go to the end, so that each comes to its turn.
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
  // Milliseconds until the oldest span has been free for `delay_ms`, or the source comes next that
  // has a delay of its own; the largest value when nothing is dirty.
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

  // --- how much there is
  // --------------------------------------------------------------------------

  // In spans that age as everybody's do. Thread-safe, approximate.
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
  // Dirty, in sources that have delays of their own. Thread-safe, approximate.
  [[nodiscard]] std::size_t delayed_bytes() const noexcept {
    return delayed_bytes_.load(std::memory_order_relaxed);
  }
  // Dirty, and never purged.
  [[nodiscard]] std::size_t kept_bytes() const noexcept { return kept_bytes_; }
  [[nodiscard]] std::size_t clean_bytes() const noexcept { return clean_bytes_; }

  // For checks: calls `visit(span)` for each dirty span that is in a list by age.
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
  // As many sources with a delay of their own are looked at each time.
  static constexpr std::uint32_t kDelayedLooks = 16;

  // Calls `use` with the bins where a free span belongs.
  template <class Use>
  void with_bins(const Span& span, Use&& use) noexcept {
    const bool is_dirty = span.state == SpanState::dirty;
    if (PageSource* const source = span.region->source) {
      return use(is_dirty ? source->dirty : source->clean);
    }
    use(is_dirty ? dirty() : clean(span.region->filling));
  }
  static void insert_by_age(SpanAgeList& list, Span* span) noexcept {
    const Span* const oldest = list.last();
    const bool is_oldest =
        oldest != nullptr && static_cast<std::int32_t>(span->freed_ms - oldest->freed_ms) < 0;
    is_oldest ? list.push_back(span) : list.push_front(span);
  }
  // Of dirty spans that do not age like everybody's.
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

  Bins* bins_ = nullptr;
  SpanAgeList by_age_;  // freed last first
  // How much the last span was that became dirty.
  std::atomic<std::size_t> last_freed_bytes_{0};
  DelayedList delayed_;  // sources with a delay of their own, and dirty spans
  std::atomic<std::size_t> delayed_bytes_{0};
  std::size_t kept_bytes_ = 0;
  std::size_t clean_bytes_ = 0;
  // No dirty span that ages was freed before, or not by more than a wait for the lock or half a
  // delay: those that nobody had used for a while when they were freed may stand in front of
  // others.
  std::atomic<std::uint32_t> none_before_ms_{0};
  std::atomic<std::size_t> dirty_bytes_{0};
};

}  // namespace allod::space

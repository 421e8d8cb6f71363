// The classic litmus tests: what the model must allow, and what it must forbid.
#include <atomic>
#include <string>

#include "explore.hpp"

namespace order::litmus {
namespace {

using std::memory_order;
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcqRel = std::memory_order_acq_rel;
constexpr auto kSeqCst = std::memory_order_seq_cst;

std::atomic<int> x, y, z;
int data;
int r[8];

void reset() {
  x = y = z = 0;
  data = 0;
  for (int& result : r) result = -1;
}
// The results that were set, in order.
void note_results() {
  std::string text;
  for (const int result : r) {
    if (result >= 0) text += static_cast<char>('0' + result);
  }
  note(text);
}

template <class... Threads>
void litmus(const char* name, const char* about, Threads... threads) {
  std::vector<std::function<void()>> all{threads...};
  scenarios().push_back({name, about, static_cast<unsigned>(all.size()), reset, [] {},
                         [all](unsigned thread) { all[thread - 1](); }, note_results});
}
void note_last() {
  r[6] = x.load();
  r[7] = y.load();
}

const bool kRegistered = [] {
  // Message passing.
  litmus(
      "litmus_mp_relaxed", "a message may be overtaken by its flag",
      [] { x.store(1, kRelaxed), y.store(1, kRelaxed); },
      [] { r[0] = y.load(kRelaxed), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_mp", "release and acquire hand over what was written before",
      [] { x.store(1, kRelaxed), y.store(1, kRelease); },
      [] { r[0] = y.load(kAcquire), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_mp_release_only", "a release alone hands over nothing",
      [] { x.store(1, kRelaxed), y.store(1, kRelease); },
      [] { r[0] = y.load(kRelaxed), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_mp_acquire_only", "nor does an acquire alone",
      [] { x.store(1, kRelaxed), y.store(1, kRelaxed); },
      [] { r[0] = y.load(kAcquire), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_mp_fences", "fences around relaxed accesses do",
      [] {
        x.store(1, kRelaxed);
        std::atomic_thread_fence(kRelease);
        y.store(1, kRelaxed);
      },
      [] {
        r[0] = y.load(kRelaxed);
        std::atomic_thread_fence(kAcquire);
        r[1] = x.load(kRelaxed);
      });
  litmus(
      "litmus_mp_one_fence", "a fence on one side does not",
      [] {
        x.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        y.store(1, kRelaxed);
      },
      [] { r[0] = y.load(kRelaxed), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_mp_sc_data", "a sequentially consistent access orders no relaxed one after it",
      [] { x.store(1, kSeqCst), y.store(1, kRelaxed); },
      [] { r[0] = y.load(kRelaxed), r[1] = x.load(kSeqCst); });
  // A release sequence.
  litmus(
      "litmus_release_sequence", "a read-modify-write passes on what was released",
      [] { x.store(1, kRelaxed), y.store(1, kRelease); }, [] { y.fetch_add(1, kRelaxed); },
      [] {
        r[0] = y.load(kAcquire);
        r[1] = x.load(kRelaxed);
      });
  litmus(
      "litmus_release_broken", "another thread's store does not",
      [] { x.store(1, kRelaxed), y.store(1, kRelease); },
      [] {
        if (y.load(kRelaxed) == 1) y.store(2, kRelaxed);
      },
      [] {
        r[0] = y.load(kAcquire);
        r[1] = x.load(kRelaxed);
      });
  // Store buffering.
  litmus(
      "litmus_sb", "stores may wait in buffers",
      [] { x.store(1, kRelease), r[0] = y.load(kAcquire); },
      [] { y.store(1, kRelease), r[1] = x.load(kAcquire); });
  litmus(
      "litmus_sb_sc", "but not if all is sequentially consistent",
      [] { x.store(1), r[0] = y.load(); }, [] { y.store(1), r[1] = x.load(); });
  litmus(
      "litmus_sb_half", "one relaxed load is enough to break it",
      [] { x.store(1), r[0] = y.load(kAcquire); }, [] { y.store(1), r[1] = x.load(); });
  litmus(
      "litmus_sb_fences", "fences forbid it too",
      [] {
        x.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        r[0] = y.load(kRelaxed);
      },
      [] {
        y.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        r[1] = x.load(kRelaxed);
      });
  litmus(
      "litmus_sb_weak_fence", "acquire and release fences do not",
      [] {
        x.store(1, kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        r[0] = y.load(kRelaxed);
      },
      [] {
        y.store(1, kRelaxed);
        std::atomic_thread_fence(kAcqRel);
        r[1] = x.load(kRelaxed);
      });
  litmus(
      "litmus_sb_exchange", "a sequentially consistent exchange is as good as a store",
      [] { x.exchange(1), r[0] = y.load(); }, [] { y.exchange(1), r[1] = x.load(); });
  litmus(
      "litmus_sb_barrier", "a barrier of all threads orders those without a fence",
      [] {
        x.store(1, kRelaxed);
        r[0] = y.load(kRelaxed);
      },
      [] {
        y.store(1, kRelaxed);
        barrier();
        r[1] = x.load(kRelaxed);
      });
  // Load buffering, which the model leaves out.
  litmus(
      "litmus_lb", "no load returns what is stored later",
      [] { r[0] = x.load(kRelaxed), y.store(1, kRelaxed); },
      [] { r[1] = y.load(kRelaxed), x.store(1, kRelaxed); });
  // Independent reads of independent writes.
  litmus(
      "litmus_iriw", "readers may disagree about two writers", [] { x.store(1, kRelease); },
      [] { y.store(1, kRelease); }, [] { r[0] = x.load(kAcquire), r[1] = y.load(kAcquire); },
      [] { r[2] = y.load(kAcquire), r[3] = x.load(kAcquire); });
  litmus(
      "litmus_iriw_sc", "but not if all is sequentially consistent", [] { x.store(1); },
      [] { y.store(1); }, [] { r[0] = x.load(), r[1] = y.load(); },
      [] { r[2] = y.load(), r[3] = x.load(); });
  litmus(
      "litmus_iriw_fences", "nor with fences between the loads", [] { x.store(1, kRelaxed); },
      [] { y.store(1, kRelaxed); },
      [] {
        r[0] = x.load(kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        r[1] = y.load(kRelaxed);
      },
      [] {
        r[2] = y.load(kRelaxed);
        std::atomic_thread_fence(kSeqCst);
        r[3] = x.load(kRelaxed);
      });
  // Write to read causality.
  litmus(
      "litmus_wrc", "what is handed over twice arrives", [] { x.store(1, kRelaxed); },
      [] {
        r[0] = x.load(kRelaxed);
        y.store(1, kRelease);
      },
      [] { r[1] = y.load(kAcquire), r[2] = x.load(kRelaxed); });
  // Coherence.
  litmus(
      "litmus_corr", "loads of one location do not go back",
      [] { x.store(1, kRelaxed), x.store(2, kRelaxed); },
      [] { r[0] = x.load(kRelaxed), r[1] = x.load(kRelaxed); });
  litmus(
      "litmus_corr_two", "nor do two threads see two stores in different orders",
      [] { x.store(1, kRelaxed); }, [] { x.store(2, kRelaxed); },
      [] { r[0] = x.load(kRelaxed), r[1] = x.load(kRelaxed); },
      [] { r[2] = x.load(kRelaxed), r[3] = x.load(kRelaxed); });
  litmus(
      "litmus_cowr", "a thread sees its own store, or a later one",
      [] { x.store(1, kRelaxed), r[0] = x.load(kRelaxed); }, [] { x.store(2, kRelaxed); });
  litmus(
      "litmus_2_2w", "each of two locations may end with what was stored first",
      [] { x.store(1, kRelaxed), y.store(2, kRelaxed); },
      [] { y.store(1, kRelaxed), x.store(2, kRelaxed); });
  scenarios().back().check = [] { note_last(), note_results(); };
  litmus(
      "litmus_2_2w_sc", "but not if all is sequentially consistent", [] { x.store(1), y.store(2); },
      [] { y.store(1), x.store(2); });
  scenarios().back().check = [] { note_last(), note_results(); };
  // A sequentially consistent order that does not agree with what happens before (Z6.U).
  litmus(
      "litmus_z6u", "release and acquire between sequentially consistent accesses are weaker",
      [] { x.store(1), y.store(1, kRelease); },
      [] { r[0] = y.fetch_add(1), r[1] = y.load(kRelaxed); }, [] { y.store(3), r[2] = x.load(); });
  // Read-modify-writes.
  litmus(
      "litmus_rmw", "two increments do not get lost", [] { r[0] = x.fetch_add(1, kRelaxed); },
      [] { r[1] = x.fetch_add(1, kRelaxed); });
  litmus(
      "litmus_rmw_store", "nothing comes between the parts of a read-modify-write",
      [] { r[0] = x.fetch_add(2, kRelaxed); }, [] { x.store(1, kRelaxed); });
  scenarios().back().check = [] {
    r[7] = x.load();
    note_results();
  };
  litmus(
      "litmus_cas", "one of two succeeds",
      [] {
        int expected = 0;
        r[0] = x.compare_exchange_strong(expected, 1, kRelaxed) ? 1 : 0;
      },
      [] {
        int expected = 0;
        r[1] = x.compare_exchange_strong(expected, 2, kRelaxed) ? 1 : 0;
      });
  // Plain accesses.
  litmus(
      "litmus_race", "an unordered plain access is a race", [] { data = 1, y.store(1, kRelaxed); },
      [] { r[0] = y.load(kAcquire) == 1 ? data : 2; });
  scenarios().back().begin = [] { reset(), watch(&data, sizeof data); };
  litmus(
      "litmus_no_race", "an ordered one is none", [] { data = 1, y.store(1, kRelease); },
      [] { r[0] = y.load(kAcquire) == 1 ? data : 2; });
  scenarios().back().begin = [] { reset(), watch(&data, sizeof data); };
  return true;
}();

}  // namespace
}  // namespace order::litmus

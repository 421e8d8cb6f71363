// How the runtime of a language may use Allod: objects that count references live in a heap, and
// what dies is put off and freed a bounded number at a time, from the slow paths of allocation. So
// no single assignment has to free a whole tree.
#include <allod.h>
#include <cstdint>
#include <cstdio>
#include <new>

namespace {

struct Object {
  int references;
  Object* left;
  Object* right;
};

// Of a runtime with one thread; each thread would have its own.
struct Runtime {
  allod_heap_t* heap = allod_heap_new();
  Object* dead = nullptr;  // a list through `left`
  std::size_t freed = 0;
  std::size_t most_at_once = 0;
  std::size_t beats = 0;

  Object* make(Object* left, Object* right) {
    return new (allod_heap_malloc(heap, sizeof(Object))) Object{1, left, right};
  }
  void drop(Object* object) {
    if (object == nullptr || --object->references > 0) return;
    drop(object->right);
    object->right = object->left;
    object->left = dead;
    dead = object;
  }
  // The children of what is freed die in their turn.
  void free_some(std::size_t most) {
    std::size_t count = 0;
    for (; dead != nullptr && count < most; ++count) {
      Object* const object = dead;
      dead = object->left;
      Object* const child = object->right;
      allod_heap_free(heap, object);
      drop(child);
    }
    freed += count;
    if (count > most_at_once) most_at_once = count;
  }
};

void on_beat(int force, std::uint64_t, void* context) {
  auto& runtime = *static_cast<Runtime*>(context);
  ++runtime.beats;
  runtime.free_some(force != 0 ? ~std::size_t{0} : 100);
}

}  // namespace

int main() {
  Runtime runtime;
  allod_register_deferred_free(on_beat, &runtime);

  // A long chain that a program builds, drops, and builds again.
  for (int round = 0; round < 20; ++round) {
    Object* chain = nullptr;
    for (int i = 0; i < 10'000; ++i) chain = runtime.make(chain, nullptr);
    runtime.drop(chain);
  }
  std::printf("put off: %s\n", runtime.dead != nullptr ? "yes" : "no");
  std::printf("at most %zu objects freed at once\n", runtime.most_at_once);
  std::printf("a heartbeat for every few allocations: %s\n", runtime.beats > 1000 ? "yes" : "no");

  allod_collect(1);
  allod_heap_stats_t stats;
  allod_heap_stats_get(runtime.heap, &stats, sizeof stats);
  std::printf("after a forced collection %zu objects are left\n", stats.live_blocks);
  allod_register_deferred_free(nullptr, nullptr);
  allod_heap_destroy(runtime.heap);
}

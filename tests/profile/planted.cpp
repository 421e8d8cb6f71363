// Leaks of every shape, and what must not be taken for one.
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace planted {

struct Node {
  Node* volatile next;
  char rest[100];
};

// So that nothing of what was called before is left on the stack by chance.
[[gnu::noinline]] void overwrite_stack() {
  volatile char bytes[1 << 16];
  for (volatile char& byte : bytes) byte = 0;
}

[[gnu::noinline]] Node* node() {
  auto* const made = static_cast<Node*>(std::malloc(sizeof(Node)));
  made->next = nullptr;
  return made;
}

// Each of these leaks.
[[gnu::noinline]] void leak_one() { node(); }
[[gnu::noinline]] void leak_chain() { node()->next = node(); }
[[gnu::noinline]] void leak_cycle() {
  Node* const a = node();
  Node* const b = node();
  a->next = b;
  b->next = a;
}
[[gnu::noinline]] void leak_huge() { std::memset(std::malloc(8 << 20), 1, 8 << 20); }
// The allocator may keep a large block for the next request when one was freed before.
[[gnu::noinline]] void leak_behind_freed() {
  constexpr std::size_t kSize = 6 << 20;
  for (int i = 0; i < 2; ++i) {
    auto* const block = static_cast<char*>(std::malloc(kSize));
    std::memset(block, 1, kSize);
    if (i == 1) {
      Node* const made = node();
      std::memcpy(block + kSize / 2, &made, sizeof made);
    }
    // As no compiler would see that nobody reads it.
    asm volatile("" : : "r"(block) : "memory");
    std::free(block);
  }
}
[[gnu::noinline]] void leak_object() { new std::string(1000, 'x'); }
void* leak_on_thread(void*) {
  node();
  // libc keeps the stack for the next thread.
  overwrite_stack();
  return nullptr;
}

// And none of these.
Node* volatile global;
thread_local Node* volatile of_thread;
std::map<int, std::string>* volatile words;
char* volatile interior;
int pipes[2];
void* keep_on_stack(void*) {
  Node* volatile on_stack = node();
  of_thread = node();
  char byte = 0;
  static_cast<void>(write(pipes[1], &byte, 1));
  pause();
  return on_stack;
}
[[gnu::noinline]] void keep() {
  global = node();
  global->next = node();
  of_thread = node();
  words = new std::map<int, std::string>;
  for (int i = 0; i < 100; ++i) (*words)[i] = std::string(100, 'x');
  interior = static_cast<char*>(std::malloc(1 << 20)) + 1000;
  pthread_t thread;
  if (pipe(pipes) != 0) std::abort();
  pthread_create(&thread, nullptr, keep_on_stack, nullptr);
  char byte;
  if (read(pipes[0], &byte, 1) != 1) std::abort();
  std::free(std::malloc(100));
}
}  // namespace planted

int main(int count, char**) {
  planted::keep();
  if (count > 1) {
    planted::leak_one();
    planted::leak_chain();
    planted::leak_cycle();
    planted::leak_huge();
    planted::leak_behind_freed();
    planted::leak_object();
    pthread_t thread;
    pthread_create(&thread, nullptr, planted::leak_on_thread, nullptr);
    pthread_join(thread, nullptr);
  }
  planted::overwrite_stack();
}

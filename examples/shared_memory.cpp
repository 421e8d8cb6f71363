// A heap in memory that two processes share. One makes the heap, and what it builds there the
// other reads and changes. Addresses differ from process to process: what points into the memory
// is an offset.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <allod/api/heap.hpp>
#include <cstdio>

namespace {

constexpr std::size_t kBytes = 1 << 20;

// In the first bytes of the memory, before the part that the heap gets.
struct Header {
  std::size_t first;  // offset of a message; 0: none
};
struct Message {
  std::size_t next;
  char text[40];
};

Message* at(void* memory, std::size_t offset) {
  return reinterpret_cast<Message*>(static_cast<char*>(memory) + offset);
}

// Another process, with the memory at another address.
void read_and_answer(int file) {
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  for (std::size_t offset = static_cast<Header*>(memory)->first; offset != 0;) {
    Message* const message = at(memory, offset);
    std::printf("the other process reads: %s\n", message->text);
    std::snprintf(message->text, sizeof message->text, "read");
    offset = message->next;
  }
  std::fflush(stdout);
}

}  // namespace

int main() {
  const int file = memfd_create("messages", 0);
  if (file < 0 || ftruncate(file, kBytes) != 0) return 1;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

  allod_heap_options_t options = allod::Heap::options("messages");
  options.memory = static_cast<char*>(memory) + sizeof(Header);
  options.memory_bytes = kBytes - sizeof(Header);
  allod::Heap heap{options};

  auto* const header = static_cast<Header*>(memory);
  for (const char* const text : {"a first message", "a second one"}) {
    auto* const message = static_cast<Message*>(heap.allocate(sizeof(Message)));
    std::snprintf(message->text, sizeof message->text, "%s", text);
    message->next = header->first;
    header->first =
        static_cast<std::size_t>(reinterpret_cast<char*>(message) - static_cast<char*>(memory));
  }

  const pid_t other = fork();
  if (other == 0) {
    munmap(memory, kBytes);
    read_and_answer(file);
    _exit(0);
  }
  waitpid(other, nullptr, 0);
  std::printf("back here: %s\n", at(memory, header->first)->text);
}

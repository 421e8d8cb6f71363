// The program around a defect: what it owns, what it says, and how it finds out that it was harmed.
#pragma once

#include <cstddef>

namespace security {

using Byte = unsigned char;

// Writes to standard error, without memory of the heap.
void say(const char* text);
// Which library malloc comes from.
void say_who_serves();
// Marks on standard error, among the allocator's own words: judge.py reads both.
void before();
void after();
// The defect harms the program: said once, the first time.
void effect(const char* what);

// The compiler forgets what it knows about a pointer.
template <class T>
[[nodiscard]] inline T* opaque(T* pointer) {
  asm volatile("" : "+r"(pointer)::"memory");
  return pointer;
}

// --- what the program owns ------------------------------------------------------
// Owned memory is filled with a pattern. It must keep it, and no allocation may overlap it: after
// before() each allocation is compared with all that is owned.

// malloc, and own. Ends the program if there is no memory.
Byte* take(std::size_t size);
// calloc, whose result must be zero, and own.
Byte* take_zeroed(std::size_t size);
// free what is owned.
void give_back(Byte* block);
// Memory that does not come from malloc; or, for disown, that is given back in another way.
void own(Byte* begin, std::size_t size);
void disown(const Byte* begin);

// Takes so many blocks that `kHeapBytes` are owned, and returns the one in the middle of the
// addresses.
constexpr std::size_t kHeapBytes = 3U << 20U;
Byte* take_a_heap(std::size_t size);
void give_back_all();

// Takes blocks of the size, and keeps them, until one begins where `address` points to. A patient
// attacker would wait longer; this one does so `kPatience` times.
constexpr std::size_t kPatience = 64;
bool take_until_reused(const Byte* address, std::size_t size);

// Goes on like any program, with blocks of this size, and finds out what the defect has done.
void go_on(std::size_t size);
// Whether everything that is owned has kept its contents.
void verify();

// malloc_usable_size of a block of at least this size that is used to its last byte.
std::size_t full_size(std::size_t size);

// Calls it on a new thread, and waits for its end.
void on_another_thread(void (*function)(Byte*), Byte* argument);

}  // namespace security

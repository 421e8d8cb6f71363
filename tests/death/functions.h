// Functions whose names a report must show, and how a case talks to the test that runs it.
#ifndef ALLOD_TESTS_DEATH_FUNCTIONS_H
#define ALLOD_TESTS_DEATH_FUNCTIONS_H

#include "cases.h"

#ifdef __cplusplus
extern "C" {
#endif

// Each calls the function of libc that its name says, and has a frame of its own.
void* allocating_function(size_t size);
void freeing_function(void* block);
void* reallocating_function(void* block, size_t size);
// The calls that are wrong: free, realloc, free_sized, free_aligned_sized.
void misusing_function(void* address);
void* misusing_realloc(void* address, size_t size);
void misusing_free_sized(void* block, size_t size);
void misusing_free_aligned_sized(void* block, size_t alignment, size_t size);

// Keeps the frame of the function that uses it.
#define KEEP_FRAME() __asm__ volatile("" : : : "memory")
#define OWN_FRAME __attribute__((noinline))

// Tells the test a fact, a line on standard output, without allocating.
void tell(const char* name, uintptr_t value);
// Tells the address under the name "block" or "address", and the id of the main thread as
// "main_thread". Returns the address.
void* tell_block(void* block);
void* tell_address(void* address);
// Tells the id of the calling thread.
void tell_thread(const char* name);

// A number that the test gives by the environment.
size_t parameter(const char* name);

// Runs the function on a thread of its own, tells the id of that as "thread", and waits for its
// end.
void on_another_thread(void (*function)(void*), void* argument);

// Calls `here` on this thread, then `there` on another one, which has been started before, so that
// nothing is allocated between the two.
void here_then_there(void (*here)(void*), void (*there)(void*), void* argument);

// The end of a case that goes on after its misuse: uses the heap, has the library check it, and
// tells that it came here.
void survive(void);

#ifdef __cplusplus
}
#endif
#endif

// Wrong calls that the release library sees on its slow paths.
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "functions.h"

enum { kBlockBytes = 100, kBlocks = 12000 };
static unsigned char* blocks[kBlocks];

// Threads take the shared domain of the processor that they are on: one that moves would make
// another domain, and the numbers that the reports tell would be others.
__attribute__((constructor)) static void stay_on_one_processor(void) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  CHECK(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

static void allocate_blocks(void* unused) {
  (void)unused;
  for (size_t i = 0; i < kBlocks; ++i) {
    blocks[i] = allocating_function(kBlockBytes);
  }
}
// Too few for a domain of the thread's own.
static void allocate_few_blocks(void* unused) {
  (void)unused;
  for (size_t i = 0; i < 100; ++i) {
    blocks[i] = allocating_function(kBlockBytes);
  }
}
static void free_blocks(size_t first, size_t end) {
  for (size_t i = first; i < end; ++i) {
    freeing_function(blocks[i]);
  }
}
// Has the thread do slow operations, without touching the class of the blocks.
static void use_other_classes(void) {
  enum { kOthers = 300 };
  void* others[kOthers];
  for (size_t i = 0; i < kOthers; ++i) {
    others[i] = obtain(1000 + i * 16);
  }
  for (size_t i = 0; i < kOthers; ++i) {
    free(others[i]);
  }
}

CASE(interior_free_seen_when_the_magazine_is_flushed) {
  allocate_blocks(NULL);
  // What a large magazine gives back is what was freed last.
  free_blocks(1000, 5000);
  misusing_function((unsigned char*)tell_block(blocks[10]) + 16);
  // The heap does not know that the block is meant, so it is still there.
  free_blocks(5000, 9000);
  freeing_function(blocks[10]);
  survive();
}

CASE(double_free_seen_when_the_magazine_is_flushed) {
  allocate_blocks(NULL);
  free_blocks(1000, 5000);
  freeing_function(tell_block(blocks[10]));
  misusing_function(blocks[10]);
  free_blocks(5000, 9000);
  survive();
}

CASE(double_free_seen_by_trim) {
  allocate_blocks(NULL);
  freeing_function(tell_block(blocks[10]));
  misusing_function(blocks[10]);
  malloc_trim(0);
  survive();
}

// The first of the two takes the last block of its slab away, and the slab with it.
CASE(double_free_whose_slab_is_gone) {
  allocate_blocks(NULL);
  unsigned char* block = tell_block(blocks[kBlocks / 2]);
  const uintptr_t slab = (uintptr_t)block & ~(uintptr_t)0xffff;
  for (size_t i = 0; i < kBlocks; ++i) {
    if (blocks[i] != block && ((uintptr_t)blocks[i] & ~(uintptr_t)0xffff) == slab) {
      freeing_function(blocks[i]);
      blocks[i] = NULL;
    }
  }
  // Nothing of the slab is in the magazine any more.
  malloc_trim(0);
  freeing_function(block);
  misusing_function(block);
  malloc_trim(0);
  survive();
}

static void leave_interior_in_magazine(void* unused) {
  allocate_blocks(unused);
  misusing_function((unsigned char*)tell_block(blocks[10]) + 16);
}
CASE(interior_free_seen_when_the_thread_ends) {
  on_another_thread(leave_interior_in_magazine, NULL);
  survive();
}

static void free_two_times(void* block) {
  freeing_function(block);
  misusing_function(block);
}
CASE(double_free_of_the_block_of_another_thread) {
  allocate_blocks(NULL);
  on_another_thread(free_two_times, tell_block(blocks[10]));
  survive();
}

CASE(double_free_by_two_other_threads) {
  allocate_blocks(NULL);
  tell_block(blocks[10]);
  on_another_thread(freeing_function, blocks[10]);
  on_another_thread(misusing_function, blocks[10]);
  survive();
}

CASE(double_free_by_two_other_threads_with_a_look_between) {
  allocate_blocks(NULL);
  tell_block(blocks[10]);
  on_another_thread(freeing_function, blocks[10]);
  use_other_classes();
  on_another_thread(misusing_function, blocks[10]);
  use_other_classes();
  survive();
}

CASE(double_free_by_the_owner_and_another_thread) {
  allocate_blocks(NULL);
  tell_block(blocks[10]);
  free_blocks(1000, 5000);
  freeing_function(blocks[10]);
  // The block is in its slab again, and nothing takes it out.
  free_blocks(5000, 9000);
  on_another_thread(misusing_function, blocks[10]);
  use_other_classes();
  survive();
}

CASE(interior_free_in_the_block_of_another_thread) {
  allocate_blocks(NULL);
  on_another_thread(misusing_function, (unsigned char*)tell_block(blocks[10]) + 16);
  survive();
}

// The first blocks of a thread lie in a domain that threads share, the others in its own.
CASE(double_free_of_a_block_whose_thread_has_ended) {
  on_another_thread(allocate_blocks, NULL);
  free_two_times(tell_block(blocks[kBlocks / 2]));
  survive();
}

CASE(interior_free_in_a_block_whose_thread_has_ended) {
  on_another_thread(allocate_blocks, NULL);
  misusing_function((unsigned char*)tell_block(blocks[kBlocks / 2]) + 16);
  survive();
}

CASE(double_free_of_a_block_that_is_shared) {
  on_another_thread(allocate_few_blocks, NULL);
  free_two_times(tell_block(blocks[10]));
  survive();
}

CASE(interior_free_in_a_block_that_is_shared) {
  on_another_thread(allocate_few_blocks, NULL);
  misusing_function((unsigned char*)tell_block(blocks[10]) + 16);
  survive();
}

CASE(double_free_of_a_block_in_a_free_span) {
  allocate_blocks(NULL);
  tell_block(blocks[kBlocks / 2]);
  free_blocks(0, kBlocks);
  malloc_trim(0);
  misusing_function(blocks[kBlocks / 2]);
  survive();
}

// Runs after the allocator has learned that the thread ends, if its key was created later.
static void destroy(void* block) { misusing_function(block); }
static pthread_key_t key;
static void leave_for_destructor(void* block) {
  freeing_function(obtain(1));
  CHECK(pthread_setspecific(key, block) == 0, "pthread_setspecific");
}
CASE(interior_free_by_a_thread_that_has_nearly_ended) {
  allocate_blocks(NULL);
  CHECK(pthread_key_create(&key, destroy) == 0, "pthread_key_create");
  on_another_thread(leave_for_destructor, (unsigned char*)tell_block(blocks[10]) + 16);
  survive();
}

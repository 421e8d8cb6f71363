// Blocks that the program has freed, and whose addresses no sweep takes for pointers: do they come
// back?
#ifndef ALLOD_TESTS_SWEEP_SECRETS_H
#define ALLOD_TESTS_SWEEP_SECRETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cases.h"

enum { SIZE = 100, SWEEPS = 3, FOR_EVER = 500000 };

// Has a system call fail from now on, if its first argument has one of these bits.
void refuse(unsigned number, unsigned bits);

extern char* volatile global;

// An address that no sweep takes for one.
typedef uintptr_t secret;
static inline secret hide(const void* block) { return ~(uintptr_t)block; }

// Allocates and frees so often. Does the block come back?
bool comes_back(secret block, size_t size, int tries);
// Whether it comes back, or lies free and waits for its turn: while a late sweep held much, the
// heap has grown by slabs that nobody needs afterwards.
bool is_let_go(secret block, size_t size);
// What earlier calls have left on the stack.
void clear_stack(void);
// Has the place point into a block, and frees that.
secret free_one(char* volatile* pointer, size_t size, size_t offset);
// Until blocks of which nothing is left have been used again, one after the other: so there were
// sweeps, and none of them let go of these. The number of such blocks.
int sweeps_without(const secret* blocks, size_t count, size_t size, int most, const char* where);
void must_keep(secret block, size_t size, const char* where);
void must_let_go(secret block, size_t size, const char* where);

// Something may be left of one block. Not of all of many.
enum { POINTERS = 16, MOST_SECRETS = 256 };
extern secret secrets[MOST_SECRETS];
extern size_t secret_count;
// All of these, and forgets them.
void must_keep_secrets(const char* where, size_t size);

// Frees enough for some sweeps; as the body of a thread, too.
void* churn(void* unused);
// Tells the threads that wait for it.
extern volatile bool is_over;
// A thread that sweeps, until it is told.
pthread_t begin_to_churn(void);
void end_churning(pthread_t thread);

// /proc/self/task/THREAD/status.
void read_status(long thread, char* text, size_t size);
// Until the thread is in this state there.
void await_state(long thread, char wanted);

#endif

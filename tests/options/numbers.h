// What a program can learn from the library that is preloaded, and what it does to give it
// something to count.
#ifndef ALLOD_TESTS_OPTIONS_NUMBERS_H
#define ALLOD_TESTS_OPTIONS_NUMBERS_H

#include "allod.h"
#include "cases.h"

// The summary, as allod_stats_get gives it.
allod_stats_t stats(void);
// Writes the statistics to standard output, as one line, without allocating.
void write_stats(void);

// allod_option_set.
int set_option(const char* name, const char* value);

// `count` blocks of `size` bytes, each byte written to; and back. Fails when a byte is lost.
void allocate_touched(unsigned char** blocks, size_t count, size_t size);
void free_touched(unsigned char** blocks, size_t count, size_t size);

// Milliseconds of the monotonic clock.
uint64_t now_ms(void);
// Lets a millisecond pass. For loops that wait, with a bound, for what others do.
void pass_a_millisecond(void);

#endif

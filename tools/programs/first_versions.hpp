// Included before everything else in a program that is to run with any glibc since 2.17: it asks
// for the first versions of what later releases have moved into libc.so.
#pragma once

#include "allod/os/linux/first_version.hpp"

#define ALLOD_TAKE_FIRST(name) __asm__(".symver " #name ", " #name "@" ALLOD_FIRST_VERSION)

ALLOD_TAKE_FIRST(dladdr);
ALLOD_TAKE_FIRST(dlopen);
ALLOD_TAKE_FIRST(dlsym);
ALLOD_TAKE_FIRST(pthread_barrier_init);
ALLOD_TAKE_FIRST(pthread_barrier_wait);
ALLOD_TAKE_FIRST(pthread_create);
ALLOD_TAKE_FIRST(pthread_join);

#undef ALLOD_TAKE_FIRST

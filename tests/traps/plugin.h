// What plugin.c and plugin_cpp.cpp export.
#ifndef ALLOD_TESTS_PLUGIN_H
#define ALLOD_TESTS_PLUGIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// A block of this size with pattern 42, and the end of one.
void* plugin_allocate(size_t size);
void plugin_free(void* block, size_t size);
// Fills the calling thread's storage in the library.
void plugin_use_storage(unsigned char value);

typedef void* (*plugin_allocate_function)(size_t size);
typedef void (*plugin_free_function)(void* block, size_t size);
typedef void (*plugin_use_storage_function)(unsigned char value);

#ifdef __cplusplus
}
#endif
#endif

/* Loaded late by a program that runs on Allod. */
#include <stdlib.h>
#include <string.h>

__declspec(dllexport) void* plugin_allocate(size_t size) { return malloc(size); }
__declspec(dllexport) void plugin_free(void* block) { free(block); }

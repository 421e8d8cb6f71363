// What programs do to blocks whose size and place the test says.
#pragma once

#include <cstddef>

#include "functions.h"

inline std::size_t size() { return parameter("TEST_SIZE"); }
inline std::size_t offset() { return parameter("TEST_OFFSET"); }

inline void flip(void* block, std::ptrdiff_t at) {
  volatile unsigned char* const byte = static_cast<unsigned char*>(hidden(block)) + at;
  *byte = *byte ^ 1;
}

// As many frees as a block waits for in quarantine, and more.
inline void free_many() {
  for (int i = 0; i < 800; ++i) misusing_function(allocating_function(100));
}
inline void use_all_of(void* block, std::size_t bytes) {
  auto* const byte = static_cast<unsigned char*>(block);
  for (std::size_t at = 0; at < bytes; at += 512) byte[at] = 1;
  byte[bytes - 1] = 1;
}

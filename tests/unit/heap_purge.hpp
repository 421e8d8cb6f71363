// Memory that a heap may give back, for the tests of layer 5.
#pragma once

#include <cstring>

#include "heap_world.hpp"

namespace allod::test {

class HeapPurge : public HeapWorld {
 protected:
  void leave_dirty(Domain& domain, std::size_t bytes) {
    pass_time(domain, 1);  // what that needs is not taken from what is left
    void* const block = allocate(domain, bytes);
    std::memset(block, 1, bytes);
    release(domain, block);
  }
};

}  // namespace allod::test

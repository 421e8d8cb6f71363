// Every form of operator new and delete that a program can replace: eight of the one, twelve of the
// other.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include "cases.h"

namespace operator_forms {

using std::align_val_t;
using std::nothrow;
using std::size_t;

struct Allocation {
  const char* name;
  bool aligned;
  bool throwing;
  void* (*allocate)(std::size_t size, std::align_val_t alignment);
};

inline const Allocation kAllocations[] = {
    {"new", false, true, [](size_t n, align_val_t) { return ::operator new(n); }},
    {"new[]", false, true, [](size_t n, align_val_t) { return ::operator new[](n); }},
    {"new (nothrow)", false, false,
     [](size_t n, align_val_t) { return ::operator new(n, nothrow); }},
    {"new[] (nothrow)", false, false,
     [](size_t n, align_val_t) { return ::operator new[](n, nothrow); }},
    {"new (align)", true, true, [](size_t n, align_val_t a) { return ::operator new(n, a); }},
    {"new[] (align)", true, true, [](size_t n, align_val_t a) { return ::operator new[](n, a); }},
    {"new (align, nothrow)", true, false,
     [](size_t n, align_val_t a) { return ::operator new(n, a, nothrow); }},
    {"new[] (align, nothrow)", true, false,
     [](size_t n, align_val_t a) { return ::operator new[](n, a, nothrow); }},
};

struct Deallocation {
  const char* name;
  bool array;
  bool aligned;
  void (*release)(void* block, std::size_t size, std::align_val_t alignment);
};

inline const Deallocation kDeallocations[] = {
    {"delete", false, false, [](void* p, size_t, align_val_t) { ::operator delete(p); }},
    {"delete[]", true, false, [](void* p, size_t, align_val_t) { ::operator delete[](p); }},
    {"delete (nothrow)", false, false,
     [](void* p, size_t, align_val_t) { ::operator delete(p, nothrow); }},
    {"delete[] (nothrow)", true, false,
     [](void* p, size_t, align_val_t) { ::operator delete[](p, nothrow); }},
    {"delete (size)", false, false,
     [](void* p, size_t n, align_val_t) { ::operator delete(p, n); }},
    {"delete[] (size)", true, false,
     [](void* p, size_t n, align_val_t) { ::operator delete[](p, n); }},
    {"delete (align)", false, true,
     [](void* p, size_t, align_val_t a) { ::operator delete(p, a); }},
    {"delete[] (align)", true, true,
     [](void* p, size_t, align_val_t a) { ::operator delete[](p, a); }},
    {"delete (size, align)", false, true,
     [](void* p, size_t n, align_val_t a) { ::operator delete(p, n, a); }},
    {"delete[] (size, align)", true, true,
     [](void* p, size_t n, align_val_t a) { ::operator delete[](p, n, a); }},
    {"delete (align, nothrow)", false, true,
     [](void* p, size_t, align_val_t a) { ::operator delete(p, a, nothrow); }},
    {"delete[] (align, nothrow)", true, true,
     [](void* p, size_t, align_val_t a) { ::operator delete[](p, a, nothrow); }},
};

inline void* allocate(const Allocation& allocation, size_t size, size_t alignment) {
  return hidden(allocation.allocate(hidden_size(size), align_val_t{hidden_size(alignment)}));
}
inline bool is_array(const Allocation& allocation) {
  return std::strncmp(allocation.name, "new[]", 5) == 0;
}
// Calls visit(allocation, deallocation) for those that go together.
template <class Visit>
void for_each_pair(Visit&& visit) {
  for (const Allocation& allocation : kAllocations) {
    for (const Deallocation& deallocation : kDeallocations) {
      if (deallocation.array != is_array(allocation)) continue;
      if (deallocation.aligned == allocation.aligned) visit(allocation, deallocation);
    }
  }
}

}  // namespace operator_forms

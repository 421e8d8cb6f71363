# What the libraries for other systems than Linux share.

set(ALLOD_PORTABLE_OPTIONS
  -fno-exceptions
  -fno-rtti
  -fno-threadsafe-statics
  # A call to malloc inside malloc must not be folded away or turned into calloc.
  -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free)

# The C interface and what it needs, without a C++ runtime. src/portable/system.hpp says what each
# system adds.
set(ALLOD_PORTABLE_SOURCES
  src/portable/heap.cpp
  src/portable/heaps.cpp
  src/portable/options.cpp
  src/portable/report.cpp
  src/portable/statistics.cpp
  src/portable/api.cpp
  src/text/text.cpp)

add_library(allod_portable_flags INTERFACE)
target_compile_options(allod_portable_flags INTERFACE ${ALLOD_PORTABLE_OPTIONS})
target_include_directories(allod_portable_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(allod_portable_flags INTERFACE allod_warnings allod_anywhere)

# allod_add_portable_objects(NAME SOURCES...): compiled as one file.
function(allod_add_portable_objects name)
  add_library(${name} OBJECT ${ARGN})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(${name} PRIVATE allod_portable_flags)
endfunction()

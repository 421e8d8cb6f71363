# What the toolchain files of macOS and FreeBSD share: zig brings clang, linkers, and the headers and
# the stubs of their C libraries. `allod_target` is what it compiles for.

file(GLOB allod_zig_packages
  ${CMAKE_CURRENT_LIST_DIR}/../.allod/venv/lib/python3*/site-packages/ziglang)
find_program(ALLOD_ZIG NAMES zig HINTS ${allod_zig_packages} REQUIRED)

set(CMAKE_C_COMPILER ${ALLOD_ZIG} cc)
set(CMAKE_CXX_COMPILER ${ALLOD_ZIG} c++)
# What CMake tries, it need not link: for C++, that would build a C++ library first.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
foreach(language IN ITEMS C CXX)
  set(CMAKE_${language}_COMPILER_TARGET ${allod_target})
  set(CMAKE_${language}_ARCHIVE_CREATE "${ALLOD_ZIG} ar qc <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "")
endforeach()
# Asked for, and not called.
set(CMAKE_AR ${ALLOD_ZIG} CACHE FILEPATH "")
set(CMAKE_RANLIB ${ALLOD_ZIG} CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL ${ALLOD_ZIG} CACHE FILEPATH "")

# What a test would find out.
set(ALLOD_HAS_GLIBC "" CACHE INTERNAL "")
set(CMAKE_HAVE_LIBC_PTHREAD 1 CACHE INTERNAL "")

set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

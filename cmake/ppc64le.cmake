# Toolchain file: Linux on 64-bit POWER, little-endian.
set(CMAKE_SYSTEM_PROCESSOR ppc64le)
set(allod_triple powerpc64le-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

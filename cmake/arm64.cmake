# Toolchain file: Linux on arm64.
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(allod_triple aarch64-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

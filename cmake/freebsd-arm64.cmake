# Toolchain file: FreeBSD 14 and later on arm64, by zig.

set(CMAKE_SYSTEM_NAME FreeBSD)
set(CMAKE_SYSTEM_VERSION 14)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(allod_target aarch64-freebsd.14.0)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)

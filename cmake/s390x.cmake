# Toolchain file: Linux on IBM Z, which is big-endian.
set(CMAKE_SYSTEM_PROCESSOR s390x)
set(allod_triple s390x-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

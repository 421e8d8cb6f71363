# Toolchain file: Linux on 32-bit ARM with hardware floating point (ARMv7).
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(allod_triple arm-linux-gnueabihf)
# gcc tells of functions that older releases call in another way. Ours stay among themselves.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

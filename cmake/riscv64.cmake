# Toolchain file: Linux on 64-bit RISC-V.
set(CMAKE_SYSTEM_PROCESSOR riscv64)
set(allod_triple riscv64-linux-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

# Toolchain file: Linux on 32-bit x86.
set(CMAKE_SYSTEM_PROCESSOR i686)
set(allod_triple i686-linux-gnu)
# gcc tells of functions that older releases call in another way. Ours stay among themselves.
set(CMAKE_CXX_FLAGS_INIT -Wno-psabi)
# Programs run on any x86-64 kernel. Debian has the loader of cross libraries beside these.
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,--dynamic-linker=/usr/${allod_triple}/lib/ld-linux.so.2,--disable-new-dtags,-rpath,/usr/${allod_triple}/lib")
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)

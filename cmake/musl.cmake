# Toolchain file: Linux on x86-64 with musl, by Debian's compiler and Debian's package musl-tools, to
# try programs that need it on a machine that has another libc. A system whose own libc is musl needs
# none of this.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER gcc)
set(CMAKE_CXX_COMPILER g++)

execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpversion
  OUTPUT_VARIABLE allod_gcc OUTPUT_STRIP_TRAILING_WHITESPACE)
set(allod_include /usr/include/x86_64-linux-gnu)
set(allod_libstdcxx "-nostdinc++ -isystem /usr/include/c++/${allod_gcc}")
string(APPEND allod_libstdcxx " -isystem ${allod_include}/c++/${allod_gcc}")
string(APPEND allod_libstdcxx " -include ${CMAKE_CURRENT_LIST_DIR}/musl/libstdcxx.hpp")

# The kernel's headers, which lie among those of the other libc.
set(allod_kernel ${CMAKE_BINARY_DIR}/kernel)
file(MAKE_DIRECTORY ${allod_kernel})
file(CREATE_LINK /usr/include/linux ${allod_kernel}/linux SYMBOLIC)
file(CREATE_LINK /usr/include/asm-generic ${allod_kernel}/asm-generic SYMBOLIC)
file(CREATE_LINK ${allod_include}/asm ${allod_kernel}/asm SYMBOLIC)

set(allod_musl "-specs=/usr/lib/x86_64-linux-musl/musl-gcc.specs -idirafter ${allod_kernel}")
set(CMAKE_C_FLAGS_INIT "${allod_musl}")
set(CMAKE_CXX_FLAGS_INIT "${allod_musl} ${allod_libstdcxx}")
# The wrapper's specs leave this out, which gcc asks for itself otherwise.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--eh-frame-hdr")
set(CMAKE_SHARED_LINKER_FLAGS_INIT
  "-Wl,--eh-frame-hdr ${CMAKE_CURRENT_LIST_DIR}/musl/dl_find_object.c")

# Built from sources, as for any other system.
set(GTest_DIR ${CMAKE_CURRENT_LIST_DIR}/googletest)

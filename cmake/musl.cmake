# Toolchain file: Linux on x86-64 with musl, by Debian's compiler and Debian's package musl-tools, to
# try programs that need it on a machine that has another libc. A system whose own libc is musl needs
# none of this. arm64-musl.cmake sets what differs, and includes this.

set(CMAKE_SYSTEM_NAME Linux)
if(NOT allod_is_arm64)
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
  set(CMAKE_C_COMPILER gcc)
  set(CMAKE_CXX_COMPILER g++)
  # Headers: the kernel's, those of the processor among them, and libstdc++'s, with what is configured for it.
  set(allod_include /usr/include)
  set(allod_asm /usr/include/x86_64-linux-gnu/asm)
  set(allod_config /usr/include/x86_64-linux-gnu/c++/VERSION)
  set(allod_specs /usr/lib/x86_64-linux-musl/musl-gcc.specs)
endif()

execute_process(COMMAND ${CMAKE_CXX_COMPILER} -dumpversion
  OUTPUT_VARIABLE allod_gcc OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE VERSION ${allod_gcc} allod_config ${allod_config})
set(allod_libstdcxx "-nostdinc++ -isystem ${allod_include}/c++/${allod_gcc}")
string(APPEND allod_libstdcxx " -isystem ${allod_config}")
string(APPEND allod_libstdcxx " -include ${CMAKE_CURRENT_LIST_DIR}/musl/libstdcxx.hpp")

# The kernel's headers, which lie among those of the other libc.
set(allod_kernel ${CMAKE_BINARY_DIR}/kernel)
file(MAKE_DIRECTORY ${allod_kernel})
file(CREATE_LINK ${allod_include}/linux ${allod_kernel}/linux SYMBOLIC)
file(CREATE_LINK ${allod_include}/asm-generic ${allod_kernel}/asm-generic SYMBOLIC)
file(CREATE_LINK ${allod_asm} ${allod_kernel}/asm SYMBOLIC)

set(allod_musl "-specs=${allod_specs} -idirafter ${allod_kernel}")
set(CMAKE_C_FLAGS_INIT "${allod_musl}")
set(CMAKE_CXX_FLAGS_INIT "${allod_musl} ${allod_libstdcxx}")
# The wrapper's specs leave this out, which gcc asks for itself otherwise.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--eh-frame-hdr")
set(CMAKE_SHARED_LINKER_FLAGS_INIT
  "-Wl,--eh-frame-hdr ${CMAKE_CURRENT_LIST_DIR}/musl/dl_find_object.c")

# Built from sources, as for any other system.
set(GTest_DIR ${CMAKE_CURRENT_LIST_DIR}/googletest)

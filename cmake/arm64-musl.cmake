# Toolchain file: Linux on arm64 with musl, by Debian's cross compiler. Debian's package musl-dev for
# arm64 lies unpacked in the state of this clone, where tools/workshop/debian_files.py puts it.

set(allod_is_arm64 ON)
set(allod_triple aarch64-linux-gnu)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER ${allod_triple}-gcc)
set(CMAKE_CXX_COMPILER ${allod_triple}-g++)
foreach(tool IN ITEMS AR LINKER NM OBJCOPY OBJDUMP RANLIB READELF STRIP)
  string(TOLOWER ${tool} name)
  string(REPLACE linker ld name ${name})
  set(CMAKE_${tool} ${allod_triple}-${name})
endforeach()
set(allod_include /usr/${allod_triple}/include)
set(allod_asm ${allod_include}/asm)
set(allod_config ${allod_include}/c++/VERSION/${allod_triple})

# The specs name the folders of an installation.
get_filename_component(allod_musl_root ${CMAKE_CURRENT_LIST_DIR}/../.allod/musl-arm64 ABSOLUTE)
set(allod_specs ${CMAKE_BINARY_DIR}/musl-gcc.specs)
file(READ ${allod_musl_root}/usr/lib/aarch64-linux-musl/musl-gcc.specs specs)
string(REPLACE " /usr/" " ${allod_musl_root}/usr/" specs "${specs}")
string(REPLACE "-L/usr/lib/" "-L${allod_musl_root}/lib/aarch64-linux-musl -L${allod_musl_root}/usr/lib/"
  specs "${specs}")
file(WRITE ${allod_specs} "${specs}")

# There is no libstdc++ for it, which a program in C++ is linked with that tries the compiler.
set(CMAKE_CXX_COMPILER_WORKS ON)

include(${CMAKE_CURRENT_LIST_DIR}/musl.cmake)

foreach(kind IN ITEMS EXE SHARED)
  string(APPEND CMAKE_${kind}_LINKER_FLAGS_INIT " ${CMAKE_CURRENT_LIST_DIR}/musl/getauxval.c")
endforeach()

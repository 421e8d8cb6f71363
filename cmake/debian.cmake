# What the toolchain files of Linux with glibc have in common: Debian's cross compilers and their
# libraries. `allod_triple` names them. A preset may choose another compiler that can be told the
# target.

set(CMAKE_SYSTEM_NAME Linux)

set(CMAKE_C_COMPILER ${allod_triple}-gcc CACHE STRING "")
set(CMAKE_CXX_COMPILER ${allod_triple}-g++ CACHE STRING "")
set(CMAKE_C_COMPILER_TARGET ${allod_triple})
set(CMAKE_CXX_COMPILER_TARGET ${allod_triple})
foreach(tool IN ITEMS AR LINKER NM OBJCOPY OBJDUMP RANLIB READELF STRIP)
  string(TOLOWER ${tool} name)
  string(REPLACE linker ld name ${name})
  set(CMAKE_${tool} ${allod_triple}-${name})
endforeach()

set(CMAKE_FIND_ROOT_PATH /usr/${allod_triple})
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# Debian has no GoogleTest for another architecture than the machine's; it has the sources.
set(GTest_DIR ${CMAKE_CURRENT_LIST_DIR}/googletest)

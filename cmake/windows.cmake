# Toolchain file: Windows on x86-64, by Debian's mingw-w64. Its kind with POSIX threads has
# std::thread and std::mutex, which the tests need; the libraries need no threads of either kind.

set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(allod_triple x86_64-w64-mingw32)

set(CMAKE_C_COMPILER ${allod_triple}-gcc-posix CACHE STRING "")
set(CMAKE_CXX_COMPILER ${allod_triple}-g++-posix CACHE STRING "")
set(CMAKE_RC_COMPILER ${allod_triple}-windres)

set(CMAKE_FIND_ROOT_PATH /usr/${allod_triple})
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# What a program needs besides the system's libraries is in it.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")

# Built from sources, as for any other system.
set(GTest_DIR ${CMAKE_CURRENT_LIST_DIR}/googletest)

# What the processor that is built for has, and what Allod has on it. The sources ask
# include/allod/base/processor/features.hpp.
include(CheckCXXSymbolExists)
check_cxx_symbol_exists(__GLIBC__ features.h ALLOD_HAS_GLIBC)

# On processors that came later, glibc is new enough, or was never tried as an old one.
set(ALLOD_TAKES_OLDER_GLIBC OFF)
if(ALLOD_HAS_GLIBC AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|aarch64|arm64)$")
  set(ALLOD_TAKES_OLDER_GLIBC ON)
endif()
# The hardened library keeps marks in the upper bits of words with addresses, and reads canaries by
# their lowest byte.
set(ALLOD_HAS_HARDENED OFF)
if(CMAKE_SIZEOF_VOID_P EQUAL 8 AND NOT CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  set(ALLOD_HAS_HARDENED ON)
endif()
# Traces are little-endian, and written as they lie in memory.
set(ALLOD_HAS_RECORDER ON)
if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  set(ALLOD_HAS_RECORDER OFF)
endif()
# Atomic operations on bytes, which gcc has in a library there.
set(ALLOD_ATOMICS "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "riscv64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(ALLOD_ATOMICS -l:libatomic.a)
endif()

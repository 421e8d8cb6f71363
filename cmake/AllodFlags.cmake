# Compile and link options, as interface targets.

add_library(allod_warnings INTERFACE)
target_compile_options(allod_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)

# Neither names of files nor debug information tell where the sources lie: the same sources give the
# same bytes in any place. A debugger that is started at the top of the sources finds them.
add_library(allod_anywhere INTERFACE)
target_compile_options(allod_anywhere INTERFACE
  -ffile-prefix-map=${PROJECT_BINARY_DIR}=./build
  -ffile-prefix-map=${PROJECT_SOURCE_DIR}=.)

# How the objects of the products are compiled.
add_library(allod_product_flags INTERFACE)
target_compile_options(allod_product_flags INTERFACE
  ${ALLOD_PRODUCT_OPTIONS}
  # Branches of other variants refer to what they do not have, and have to be dropped.
  $<$<CONFIG:Debug>:-O1>)
target_include_directories(allod_product_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(allod_product_flags INTERFACE allod_warnings allod_anywhere)
if(NOT ALLOD_HAS_GLIBC AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(allod_product_flags INTERFACE ${ALLOD_MUSL_X86_64_OPTIONS})
endif()

# How tests are compiled; the sanitizer, if any, comes in here.
add_library(allod_test_flags INTERFACE)
if(CMAKE_SIZEOF_VOID_P EQUAL 4)
  # Their random numbers have 64 bits, and are cut to sizes everywhere: not -Wconversion.
  target_compile_options(allod_test_flags INTERFACE -Wall -Wextra -Wshadow)
else()
  target_link_libraries(allod_test_flags INTERFACE allod_warnings)
endif()
target_link_libraries(allod_test_flags INTERFACE ${ALLOD_ATOMICS})
if(ALLOD_SANITIZER STREQUAL "")
elseif(ALLOD_SANITIZER STREQUAL "address" OR ALLOD_SANITIZER STREQUAL "fuzzer")
  set(allod_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(ALLOD_SANITIZER STREQUAL "thread")
  set(allod_sanitizers -fsanitize=thread)
else()
  message(FATAL_ERROR "ALLOD_SANITIZER is '${ALLOD_SANITIZER}'; it can be address, thread, fuzzer or empty")
endif()
if(allod_sanitizers)
  target_compile_options(allod_test_flags INTERFACE ${allod_sanitizers} -fno-omit-frame-pointer)
  target_link_options(allod_test_flags INTERFACE ${allod_sanitizers})
  if(ALLOD_SANITIZER STREQUAL "fuzzer")
    target_compile_options(allod_test_flags INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()

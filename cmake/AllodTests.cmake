# Tests. Everything built here lands in build/<preset>/tests/, and what the test runner is to run by
# itself is described in build/<preset>/tests/manifest.json.

set(ALLOD_TESTS_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
# What these programs report is lines. The rest of what a debugger can be told takes a fifth of the
# time that they take to compile.
set(ALLOD_GTEST_OPTIONS -g1)
# And what takes long to compile but not to run is compiled once with optimisation, by gcc and
# without a sanitizer.
if(ALLOD_SANITIZER MATCHES "^(address|thread)$" OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(ALLOD_QUICKLY_COMPILED -O0)
else()
  set(ALLOD_QUICKLY_COMPILED -O1)
endif()
define_property(GLOBAL PROPERTY ALLOD_TEST_MANIFEST BRIEF_DOCS "Entries of manifest.json")

# allod_record_test(KIND NAME EXECUTABLE SOURCE): the tests of that source, under that name.
function(allod_record_test kind name executable source)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set_property(GLOBAL APPEND PROPERTY ALLOD_TEST_MANIFEST
    "{\"kind\": \"${kind}\", \"name\": \"${name}\", \"source\": \"${source}\", \"executable\": \"${ALLOD_TESTS_DIRECTORY}/${executable}\"}")
endfunction()

function(allod_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEFINITIONS;OPTIONS")
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${ALLOD_TESTS_DIRECTORY})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  target_link_libraries(${name} PRIVATE
    allod_test_flags allod::header_only ${arg_LIBRARIES} ${CMAKE_DL_LIBS})
endfunction()

# allod_add_test(NAME SOURCES... [LIBRARIES ...] [DEFINITIONS ...] [OPTIONS ...])
# A GoogleTest program. Its tests are collected by pytest under the first source file.
function(allod_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEFINITIONS;OPTIONS")
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  allod_add_executable(${name} SOURCES ${sources}
    LIBRARIES ${arg_LIBRARIES} GTest::gtest GTest::gtest_main
    DEFINITIONS ${arg_DEFINITIONS} OPTIONS ${ALLOD_GTEST_OPTIONS} ${arg_OPTIONS})
  list(GET sources 0 source)
  allod_record_test(gtest ${name} ${name} ${source})
endfunction()

# allod_add_joint_test(NAME PREFIX SOURCES...)
# A GoogleTest program of files that are compiled as one: what they instantiate alike takes longer
# to compile than what they hold. Each is collected by itself, under the prefix and its own name.
function(allod_add_joint_test name prefix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;OPTIONS")
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  allod_add_executable(${name} SOURCES ${sources} LIBRARIES GTest::gtest GTest::gtest_main
    OPTIONS ${ALLOD_GTEST_OPTIONS} ${arg_OPTIONS})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM subject)
    allod_record_test(gtest ${prefix}${subject} ${name} ${source})
  endforeach()
endfunction()

# allod_add_fuzzer(NAME SOURCES...): a libFuzzer program; built by the fuzz preset only. Its corpus
# is kept in the folder corpus/NAME beside its source.
function(allod_add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEFINITIONS;OPTIONS")
  if(NOT ALLOD_SANITIZER STREQUAL "fuzzer")
    return()
  endif()
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  allod_add_executable(${name} SOURCES ${sources}
    LIBRARIES ${arg_LIBRARIES} DEFINITIONS ${arg_DEFINITIONS} OPTIONS ${arg_OPTIONS})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  list(GET sources 0 source)
  allod_record_test(fuzzer ${name} ${name} ${source})
endfunction()

# allod_add_program(NAME SOURCES... [LIBRARIES ...] [DEFINITIONS ...] [OPTIONS ...])
# A plain C or C++ program that tests or benchmarks start themselves, usually under LD_PRELOAD.
# Calls to malloc and its kin stay calls: the compiler must not reason them away.
function(allod_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES;DEFINITIONS;OPTIONS")
  set(sources ${arg_UNPARSED_ARGUMENTS} ${arg_SOURCES})
  allod_add_executable(${name} SOURCES ${sources}
    LIBRARIES ${arg_LIBRARIES} DEFINITIONS ${arg_DEFINITIONS}
    OPTIONS
      -fno-builtin-malloc -fno-builtin-calloc -fno-builtin-realloc -fno-builtin-free
      ${arg_OPTIONS})
endfunction()

# Folders of tests on the layers alone are built in every preset, but not by clang once more without
# a sanitizer; fuzzers where there is a fuzzing engine, the program of threads under ThreadSanitizer
# too, and folders of programs that run on the products where the products are built.
function(allod_add_test_directories)
  set(directories tests/unit tests/model tests/tailored)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND NOT ALLOD_SANITIZER AND NOT CMAKE_CROSSCOMPILING)
    set(directories "")
    # Of programs that run on the products, and of the examples, clang has to say what it thinks of
    # the source: only those of gcc are run.
    add_compile_options(-O0)
  elseif(ALLOD_SANITIZER STREQUAL "fuzzer")
    set(directories tests/fuzz)
  elseif(ALLOD_SANITIZER STREQUAL "thread")
    list(APPEND directories tests/stress tests/heaps)
  endif()
  if(ALLOD_BUILD_PRODUCTS)
    list(APPEND directories
      tests/surface tests/traps tests/stress tests/heaps tests/death tests/bounds tests/sweep tests/options tests/profile tests/programs tests/trace tests/live tests/unwind tests/memory_order tests/cores
      examples)
  endif()
  if(CMAKE_CROSSCOMPILING AND NOT ALLOD_HAS_GLIBC)
    list(APPEND directories tests/musl)
  elseif(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    list(APPEND directories tests/arm64)
  elseif(CMAKE_CROSSCOMPILING)
    list(APPEND directories tests/ports)
  endif()
  foreach(directory IN LISTS directories)
    if(EXISTS ${CMAKE_SOURCE_DIR}/${directory}/CMakeLists.txt)
      add_subdirectory(${directory})
    endif()
    # A folder, or its list of programs, that appears later makes the build configure again.
    file(GLOB list_file CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${directory}/CMakeLists.txt)
  endforeach()
  get_property(entries GLOBAL PROPERTY ALLOD_TEST_MANIFEST)
  list(JOIN entries ",\n  " entries)
  file(WRITE ${ALLOD_TESTS_DIRECTORY}/manifest.json "[\n  ${entries}\n]\n")
endfunction()

# The products. Every variant compiles its sources once, into two object libraries (core and
# override); shared libraries link those objects, and the static forms are one relocatable object.

# allod_add_objects(NAME SOURCES ... [OPTIONS ...]): compiled as one file, since what the sources
# include takes longer to compile than what they hold.
function(allod_add_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;OPTIONS")
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  target_link_libraries(${name} PRIVATE allod_product_flags)
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
endfunction()

# allod_add_variant(NAME [SOURCES ...] [OPTIONS ...]): object libraries NAME_core, with the further
# sources, NAME_override, and NAME_loader.
function(allod_add_variant name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;OPTIONS")
  if(CMAKE_CROSSCOMPILING AND ALLOD_BUILD_TESTS AND
      NOT (name STREQUAL "allod_release" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|aarch64)$"))
    # What an emulator is to run, and whose instructions nobody counts, compiles in half the time.
    list(APPEND arg_OPTIONS -O1)
  endif()
  allod_add_objects(${name}_core SOURCES ${ALLOD_CORE_SOURCES} ${arg_SOURCES}
    OPTIONS ${arg_OPTIONS})
  allod_add_objects(${name}_override SOURCES ${ALLOD_OVERRIDE_SOURCES} OPTIONS ${arg_OPTIONS})
  allod_add_objects(${name}_loader SOURCES ${ALLOD_LOADER_SOURCES} OPTIONS ${arg_OPTIONS})
endfunction()

# Other linkers have no such place; then constants are where they usually are.
include(CheckLinkerFlag)
set(constants_apart LINKER:-T,${CMAKE_CURRENT_LIST_DIR}/constants.ld)
check_linker_flag(C ${constants_apart} ALLOD_PLACES_CONSTANTS)

if(ALLOD_TAKES_OLDER_GLIBC)
  add_library(allod_older STATIC EXCLUDE_FROM_ALL ${ALLOD_OLDER_SOURCES})
  target_link_libraries(allod_older PRIVATE allod_product_flags)
endif()

# allod_add_shared(TARGET OUTPUT OBJECT_LIBRARIES...): OUTPUT.so in the build folder.
function(allod_add_shared target output)
  add_library(${target} SHARED)
  foreach(objects IN LISTS ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${output}
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}
    LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  if(ALLOD_TAKES_OLDER_GLIBC)
    target_link_libraries(${target} PRIVATE allod_older)
  endif()
  target_link_libraries(${target} PRIVATE ${ALLOD_ATOMICS})
  target_link_options(${target} PRIVATE
    -static-libgcc
    LINKER:--no-undefined
    LINKER:--as-needed
    LINKER:--exclude-libs,ALL
    LINKER:-z,relro
    # The kernel maps a file in windows of 64 KiB, so that where each segment begins decides how
    # much of it is resident.
    LINKER:-z,max-page-size=65536
    # Threads, exit and fork call into it for as long as the process lives.
    LINKER:-z,nodelete
    LINKER:-O1
    $<$<BOOL:${ALLOD_PLACES_CONSTANTS}>:${constants_apart}>)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# allod_add_static(TARGET OUTPUT OBJECT_FILE OBJECT_LIBRARIES...): OBJECT_FILE, one relocatable
# object, and OUTPUT.a, an archive of just that object. One object, so that a link either replaces
# the whole surface or nothing of it. Names that are not exported become local to the object, so
# that a program which also uses the header-only library cannot merge its copies with ours.
function(allod_add_static target output object_file)
  set(objects "")
  foreach(library IN LISTS ARGN)
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  set(object ${PROJECT_BINARY_DIR}/${object_file})
  # lld, which CMake prefers for clang where it is installed, leaves groups as they are.
  set(linker ${CMAKE_LINKER})
  if(linker MATCHES "lld")
    find_program(ALLOD_GNU_LINKER NAMES ld.bfd ld REQUIRED)
    set(linker ${ALLOD_GNU_LINKER})
  endif()
  add_custom_command(OUTPUT ${object}
    COMMAND ${linker} -r --force-group-allocation -o ${object} ${objects}
    COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${object}
    DEPENDS ${objects}
    COMMENT "Linking relocatable object ${object_file}"
    COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  add_library(${target} STATIC ${object})
  add_dependencies(${target} ${ARGN})  # make does not see that from the objects
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${output}
    LINKER_LANGUAGE C
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_link_libraries(${target} INTERFACE Threads::Threads ${ALLOD_ATOMICS})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

function(allod_add_products)
  allod_add_variant(allod_release)
  allod_add_variant(allod_debug SOURCES ${ALLOD_DEBUG_SOURCES} OPTIONS ${ALLOD_DEBUG_OPTIONS})
  set(preloaded allod_shared allod_debug_shared)

  # Not for archives: a program has one memcpy, and it is not ours.
  allod_add_objects(allod_bytes SOURCES ${ALLOD_BYTES_SOURCES} OPTIONS
    # A loop that copies must not become a call of the function that it is the body of.
    -fno-builtin $<$<CXX_COMPILER_ID:GNU>:-fno-tree-loop-distribute-patterns>)

  allod_add_shared(allod_shared allod
    allod_release_core allod_release_override allod_release_loader allod_bytes)
  allod_add_shared(allod_debug_shared allod-debug
    allod_debug_core allod_debug_override allod_debug_loader allod_bytes)
  if(ALLOD_HAS_HARDENED)
    allod_add_variant(allod_hardened SOURCES ${ALLOD_HARDENED_SOURCES}
      OPTIONS ${ALLOD_HARDENED_OPTIONS})
    allod_add_shared(allod_hardened_shared allod-hardened
      allod_hardened_core allod_hardened_override allod_hardened_loader allod_bytes)
    set_target_properties(allod_hardened_shared PROPERTIES EXPORT_NAME hardened)
    add_library(allod::hardened ALIAS allod_hardened_shared)
    list(APPEND preloaded allod_hardened_shared)
  endif()
  allod_add_shared(allod_prefixed_shared allod-prefixed allod_release_core allod_bytes)

  allod_add_static(allod_static allod allod.o allod_release_core allod_release_override)
  # The archive is pulled in by a reference to malloc; a program may have none of its own. Call
  # stacks need the search table that compilers leave out of programs without shared libraries.
  target_link_options(allod_static INTERFACE LINKER:--undefined=malloc,--eh-frame-hdr)
  allod_add_static(allod_prefixed_static allod-prefixed allod-prefixed.o allod_release_core)

  set_target_properties(allod_shared PROPERTIES EXPORT_NAME shared)
  set_target_properties(allod_static PROPERTIES EXPORT_NAME static)
  set_target_properties(allod_debug_shared PROPERTIES EXPORT_NAME debug)
  set_target_properties(allod_prefixed_shared PROPERTIES EXPORT_NAME prefixed)
  set_target_properties(allod_prefixed_static PROPERTIES EXPORT_NAME prefixed_static)
  add_library(allod::shared ALIAS allod_shared)
  add_library(allod::static ALIAS allod_static)
  add_library(allod::debug ALIAS allod_debug_shared)
  add_library(allod::prefixed ALIAS allod_prefixed_shared)
  add_library(allod::prefixed_static ALIAS allod_prefixed_static)

  # For their handlers of fork to be the first ones: src/process/at_fork.cpp.
  foreach(target IN LISTS preloaded)
    target_link_options(${target} PRIVATE LINKER:-z,initfirst)
  endforeach()
  # What is Allod's own has a version; what takes the place of others' functions has none, and
  # serves references to any.
  set(versions ${PROJECT_SOURCE_DIR}/cmake/allod.map)
  foreach(target IN LISTS preloaded ITEMS allod_prefixed_shared)
    target_link_options(${target} PRIVATE LINKER:--version-script=${versions})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${versions})
  endforeach()
  # Newer kernels map a larger piece of a file's memory as a whole where it lies within a segment.
  # With this, the code that every program needs fills one of 128 KiB.
  target_link_options(allod_shared PRIVATE LINKER:-z,max-page-size=131072)

  # A program may name nothing of Allod and still want its malloc: the linker must not drop the
  # library as unused. A reference by --undefined does not keep it: only those of objects count.
  foreach(target IN LISTS preloaded)
    target_link_options(${target} INTERFACE
      "LINKER:--push-state,--no-as-needed,$<TARGET_FILE:$<TARGET_NAME:${target}>>,--pop-state")
  endforeach()
endfunction()

# include/allod.hpp in the build folder: composed heaps in a single file.
function(allod_add_single_header)
  set(script ${PROJECT_SOURCE_DIR}/cmake/single_header.cmake)
  set(licence ${PROJECT_SOURCE_DIR}/LICENSE)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.hpp)
  set(single ${PROJECT_BINARY_DIR}/include/allod.hpp)
  add_custom_command(OUTPUT ${single}
    COMMAND ${CMAKE_COMMAND} -DINCLUDE=${PROJECT_SOURCE_DIR}/include -DLICENCE=${licence}
      -DVERSION=${PROJECT_VERSION} -DOUTPUT=${single} -P ${script}
    DEPENDS ${script} ${licence} ${headers}
    COMMENT "Writing allod.hpp" VERBATIM)
  add_custom_target(allod_single_header ${ALLOD_BY_DEFAULT} DEPENDS ${single})
endfunction()

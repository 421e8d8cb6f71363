# The live server, liballod-live.so: the target `live`, which nothing else needs. It is built where
# libevent, zlib and libbacktrace (which comes with gcc) are there as static libraries, and Node.js
# with npm, which bundle the page.

# For another system than this one, whoever configures has built these libraries for it, and bundled
# the page, which is the same for all.
set(ALLOD_LIVE_PARTS "" CACHE PATH "Folder of libevent and zlib, if not those of the system")
set(ALLOD_LIVE_PAGE "" CACHE FILEPATH "The bundled page, if it is there already")

if(ALLOD_LIVE_PARTS)
  set(allod_parts PATHS ${ALLOD_LIVE_PARTS}/lib NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
elseif(CMAKE_CROSSCOMPILING)
  return()
endif()
find_library(ALLOD_EVENT_CORE libevent_core.a ${allod_parts})
find_library(ALLOD_EVENT_EXTRA libevent_extra.a ${allod_parts})
find_library(ALLOD_ZLIB libz.a ${allod_parts})
if(NOT ALLOD_LIVE_PAGE)
  find_program(ALLOD_NODE node)
  find_program(ALLOD_NPM npm)
endif()
# Of gcc, whichever compiler is used. musl takes those that were made for glibc: they call nothing
# that differs.
set(allod_gcc gcc)
if(CMAKE_CROSSCOMPILING)
  set(allod_gcc ${CMAKE_CXX_COMPILER})
endif()
execute_process(COMMAND ${allod_gcc} -print-file-name=libbacktrace.a
  OUTPUT_VARIABLE ALLOD_BACKTRACE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND ${allod_gcc} -print-file-name=include
  OUTPUT_VARIABLE ALLOD_GCC_INCLUDE OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND ${allod_gcc} -print-file-name=libsupc++.a
  OUTPUT_VARIABLE ALLOD_DEMANGLER OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT ALLOD_EVENT_CORE OR NOT ALLOD_EVENT_EXTRA OR NOT ALLOD_ZLIB
    OR NOT EXISTS "${ALLOD_BACKTRACE}"
    OR NOT (ALLOD_LIVE_PAGE OR (ALLOD_NODE AND ALLOD_NPM)))
  return()
endif()
enable_language(ASM)

set(live_dir ${PROJECT_BINARY_DIR}/live)

# The page: its packages as the lock file names them, then one file with everything in it.
set(page ${ALLOD_LIVE_PAGE})
if(NOT page)
  set(page_source ${PROJECT_SOURCE_DIR}/live/page)
  file(GLOB page_files CONFIGURE_DEPENDS ${page_source}/*.ts ${page_source}/*.css
    ${page_source}/*.html ${page_source}/*.mjs
    ${PROJECT_SOURCE_DIR}/tools/allod/profile/flame_graph.*)
  set(page ${live_dir}/page.html.gz)
  add_custom_command(OUTPUT ${live_dir}/packages.stamp
    COMMAND ${CMAKE_COMMAND} -E copy ${page_source}/package.json ${page_source}/package-lock.json
      ${page_source}/tsconfig.json ${live_dir}
    COMMAND ${ALLOD_NPM} ci --no-audit --no-fund --loglevel=error
    COMMAND ${CMAKE_COMMAND} -E touch ${live_dir}/packages.stamp
    DEPENDS ${page_source}/package.json ${page_source}/package-lock.json
      ${page_source}/tsconfig.json
    WORKING_DIRECTORY ${live_dir}
    COMMENT "Fetching what the live page is made with" VERBATIM)
  add_custom_command(OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E copy ${page_files} ${live_dir}
    COMMAND ${ALLOD_NODE} bundle.mjs ${page}
    DEPENDS ${page_files} ${live_dir}/packages.stamp
    WORKING_DIRECTORY ${live_dir}
    COMMENT "Bundling the live page" VERBATIM)
endif()
file(MAKE_DIRECTORY ${live_dir})

# libevent as Debian has it is made for programs: it takes the address of stderr in a way that a
# shared library cannot. The server sends its messages elsewhere, so that stderr is not used.
foreach(part IN ITEMS CORE EXTRA)
  set(event_${part} ${live_dir}/event_${part}.a)
  add_custom_command(OUTPUT ${event_${part}}
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym stderr=allod_live_no_stderr
      ${ALLOD_EVENT_${part}} ${event_${part}}
    DEPENDS ${ALLOD_EVENT_${part}} VERBATIM)
endforeach()

file(GLOB live_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/live/*.cpp)
add_library(allod_live SHARED EXCLUDE_FROM_ALL ${live_sources}
  src/text/descriptor_text.cpp src/text/text.cpp
  src/text/demangle.cpp live/page.S
  ${event_CORE} ${event_EXTRA})
set(wrappers ${PROJECT_SOURCE_DIR}/tools/allod/profile/wrappers.txt)
set_source_files_properties(live/page.S PROPERTIES
  COMPILE_DEFINITIONS "ALLOD_LIVE_PAGE=\"${page}\";ALLOD_LIVE_WRAPPERS=\"${wrappers}\""
  OBJECT_DEPENDS "${page};${wrappers}")
target_compile_options(allod_live PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions;-fno-rtti;-fno-threadsafe-statics>
  -fvisibility=hidden -fPIC)
target_include_directories(allod_live PRIVATE src include)
if(ALLOD_LIVE_PARTS)
  target_include_directories(allod_live SYSTEM PRIVATE ${ALLOD_LIVE_PARTS}/include)
endif()
# For backtrace.h, which knows of <stdint.h> only in glibc.
target_compile_definitions(allod_live PRIVATE HAVE_STDINT_H)
# After everything else: the folder holds compiler headers as well.
target_compile_options(allod_live PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${ALLOD_GCC_INCLUDE}>)
target_link_libraries(allod_live PRIVATE allod_warnings allod_anywhere
  ${event_EXTRA} ${event_CORE} ${ALLOD_ZLIB} ${ALLOD_BACKTRACE} ${ALLOD_DEMANGLER})
if(ALLOD_HAS_GLIBC)
  target_link_libraries(allod_live PRIVATE allod_older)
endif()
target_link_options(allod_live PRIVATE
  -static-libgcc
  LINKER:--exclude-libs,ALL
  # What libbacktrace calls goes through live/symbols.cpp.
  LINKER:--wrap=dl_iterate_phdr
  LINKER:--wrap=mmap
  LINKER:--wrap=munmap
  LINKER:--gc-sections
  LINKER:--as-needed
  LINKER:-z,relro
  LINKER:-z,nodelete
  LINKER:-Bsymbolic)
set_target_properties(allod_live PROPERTIES
  OUTPUT_NAME allod-live
  UNITY_BUILD ON
  UNITY_BUILD_BATCH_SIZE 0
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINKER_LANGUAGE C
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(allod_live INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(allod_live PROPERTIES EXPORT_NAME live)
add_library(allod::live ALIAS allod_live)
if(PROJECT_IS_TOP_LEVEL)
  # With the library that it is preloaded beside.
  add_custom_target(live DEPENDS allod_live allod_shared)
endif()

# The products for macOS and FreeBSD. See docs/macos.md and docs/platforms.md for what there is.

include(${CMAKE_CURRENT_LIST_DIR}/AllodPortable.cmake)

set(ALLOD_BSD_SOURCES
  ${ALLOD_PORTABLE_SOURCES}
  src/bsd/descriptor_text.cpp
  src/bsd/process.cpp
  src/bsd/new_failure.cpp
  src/portable/api_new.cpp
  src/portable/new.cpp)
if(APPLE)
  list(APPEND ALLOD_BSD_SOURCES src/darwin/zone.cpp src/darwin/interpose.cpp)
else()
  list(APPEND ALLOD_BSD_SOURCES src/freebsd/malloc.cpp)
endif()

target_compile_options(allod_portable_flags INTERFACE
  -fPIC -fvisibility=hidden -fvisibility-inlines-hidden
  # One load reaches a thread's variables, and the loader never has to allocate for them. On macOS
  # they are no thread_local variables.
  -ftls-model=initial-exec
  # For fast paths; all other functions have one on macOS, which its profilers need.
  -momit-leaf-frame-pointer)

# CMake knows the version of macOS where it runs there.
if(APPLE AND CMAKE_CROSSCOMPILING)
  foreach(language IN ITEMS C CXX)
    set(CMAKE_SHARED_LIBRARY_RUNTIME_${language}_FLAG -Wl,-rpath,)
    set(CMAKE_EXECUTABLE_RUNTIME_${language}_FLAG -Wl,-rpath,)
  endforeach()
endif()

if(ALLOD_BUILD_PRODUCTS)
  allod_add_portable_objects(allod_core ${ALLOD_BSD_SOURCES})

  # Linked by the C driver: no C++ runtime.
  add_library(allod_shared SHARED $<TARGET_OBJECTS:allod_core>)
  target_link_libraries(allod_shared PRIVATE allod_portable_flags Threads::Threads)
  if(NOT APPLE)
    target_link_options(allod_shared PRIVATE LINKER:-z,nodelete LINKER:-z,relro LINKER:--no-undefined)
  endif()
  set_target_properties(allod_shared PROPERTIES
    OUTPUT_NAME allod EXPORT_NAME shared LINKER_LANGUAGE C
    BUILD_WITH_INSTALL_NAME_DIR ON INSTALL_NAME_DIR @rpath
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  target_include_directories(allod_shared INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  add_library(allod::shared ALIAS allod_shared)
  if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(products DEPENDS allod_shared)
  endif()
  if(ALLOD_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS allod_shared)
    install(FILES ${PROJECT_SOURCE_DIR}/include/allod.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/include/allod/new.hpp
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/allod)
  endif()
endif()
if(ALLOD_BUILD_TESTS)
  add_subdirectory(tests/bsd)
endif()

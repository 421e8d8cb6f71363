# The products and tests for Windows. See docs/windows.md for what there is.

include(${CMAKE_CURRENT_LIST_DIR}/AllodPortable.cmake)

# All that does not take the place of others' functions, and needs no C++ runtime.
set(ALLOD_WINDOWS_CORE_SOURCES
  ${ALLOD_PORTABLE_SOURCES}
  src/windows/environment.cpp
  src/windows/process.cpp
  src/windows/descriptor_text.cpp)

function(allod_add_windows_products)
  allod_add_portable_objects(allod_core ${ALLOD_WINDOWS_CORE_SOURCES})
  allod_add_portable_objects(allod_api_new src/portable/api_new.cpp)
  set_source_files_properties(src/windows/new_failure.cpp PROPERTIES COMPILE_OPTIONS -fexceptions)

  # Linked by the C driver: no C++ runtime.
  add_library(allod_shared SHARED $<TARGET_OBJECTS:allod_core> $<TARGET_OBJECTS:allod_api_new>
    src/windows/new_failure_shared.cpp cmake/allod.def)
  target_link_libraries(allod_shared PRIVATE allod_portable_flags)
  target_link_options(allod_shared PRIVATE -static-libgcc)

  # For programs that were not built with Allod, and what starts them with it.
  add_library(allod_replace SHARED $<TARGET_OBJECTS:allod_core> $<TARGET_OBJECTS:allod_api_new>
    src/windows/new_failure_shared.cpp src/windows/replace.cpp cmake/allod.def)
  target_link_libraries(allod_replace PRIVATE allod_portable_flags)
  target_link_options(allod_replace PRIVATE -static-libgcc)
  add_executable(allod_run src/windows/run.cpp)
  target_link_libraries(allod_run PRIVATE allod_portable_flags)

  # One member for each purpose: a link takes what it refers to.
  add_library(allod_prefixed_static STATIC $<TARGET_OBJECTS:allod_core>
    $<TARGET_OBJECTS:allod_api_new> src/windows/new_failure.cpp)
  target_link_libraries(allod_prefixed_static PRIVATE allod_portable_flags)
  add_library(allod_static STATIC $<TARGET_OBJECTS:allod_core> $<TARGET_OBJECTS:allod_api_new>
    src/windows/new_failure.cpp src/windows/malloc.cpp src/portable/new.cpp)
  target_link_libraries(allod_static PRIVATE allod_portable_flags)
  # A program may have no reference of its own to malloc.
  target_link_options(allod_static INTERFACE LINKER:--undefined=malloc)

  set_target_properties(allod_shared PROPERTIES OUTPUT_NAME allod PREFIX "" EXPORT_NAME shared)
  set_target_properties(allod_replace PROPERTIES OUTPUT_NAME allod-replace PREFIX "")
  set_target_properties(allod_run PROPERTIES OUTPUT_NAME allod-run)
  set_target_properties(allod_static PROPERTIES OUTPUT_NAME allod EXPORT_NAME static)
  set_target_properties(allod_prefixed_static PROPERTIES
    OUTPUT_NAME allod-prefixed EXPORT_NAME prefixed_static)
  foreach(target IN ITEMS allod_shared allod_static allod_prefixed_static allod_replace allod_run)
    set_target_properties(${target} PROPERTIES
      LINKER_LANGUAGE C
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
      ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
    target_include_directories(${target} INTERFACE
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endforeach()
  add_library(allod::shared ALIAS allod_shared)
  add_library(allod::static ALIAS allod_static)
  add_library(allod::prefixed_static ALIAS allod_prefixed_static)
  if(PROJECT_IS_TOP_LEVEL)
    add_custom_target(products DEPENDS
      allod_shared allod_static allod_prefixed_static allod_replace allod_run)
  endif()
endfunction()

if(ALLOD_BUILD_PRODUCTS)
  allod_add_windows_products()
  if(ALLOD_INSTALL)
    include(GNUInstallDirs)
    install(TARGETS allod_shared allod_static allod_prefixed_static allod_replace allod_run)
    install(FILES ${PROJECT_SOURCE_DIR}/include/allod.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/include/allod/new.hpp
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/allod)
  endif()
endif()
if(ALLOD_BUILD_TESTS)
  find_package(GTest REQUIRED)
  add_subdirectory(tests/windows)
endif()

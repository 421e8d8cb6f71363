# The layout of an installation, in components, of which packages are made: libraries; headers, CMake
# package, pkg-config files and allod.o; the command allod; debug information that was taken out.
# Nothing here needs Python or the network.

include(CMakePackageConfigHelpers)

set(allod_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/allod)
set(allod_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
set(allod_libraries
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT libraries NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

if(ALLOD_HAS_HARDENED)
  set(allod_hardened allod_hardened_shared)
endif()
install(TARGETS
    allod_shared allod_static allod_debug_shared ${allod_hardened}
    allod_copies_shared allod_ends_shared allod_prefixed_shared allod_prefixed_static allod_header_only
  EXPORT allodTargets ${allod_libraries})
if(ALLOD_HAS_RECORDER)
  install(TARGETS allod_record_shared ${allod_libraries})
endif()
install(FILES ${PROJECT_BINARY_DIR}/allod.o DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/allod.h ${PROJECT_SOURCE_DIR}/include/allod-live.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/include/allod.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_BINARY_DIR}/include/allod.hpp DESTINATION ${CMAKE_INSTALL_DATADIR}/allod)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/allod DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")

install(EXPORT allodTargets NAMESPACE allod:: DESTINATION ${allod_cmake_dir})
configure_package_config_file(cmake/allodConfig.cmake.in
  ${PROJECT_BINARY_DIR}/allodConfig.cmake INSTALL_DESTINATION ${allod_cmake_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/allodConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
    ${PROJECT_BINARY_DIR}/allodConfig.cmake ${PROJECT_BINARY_DIR}/allodConfigVersion.cmake
  DESTINATION ${allod_cmake_dir})

# The prefix is given from the file's own place, so that the tree can be installed with another
# prefix than it was configured for, and moved.
file(RELATIVE_PATH allod_pc_to_prefix
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(name IN ITEMS allod allod-static allod-prefixed allod-live)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
endforeach()
foreach(name IN ITEMS allod allod-static allod-prefixed)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${allod_pkgconfig_dir})
endforeach()

# Installed where it was built. The package finds it then: in a set of targets of its own, so that
# the others do without it.
if(TARGET allod_live)
  list(INSERT allod_libraries 3 OPTIONAL)
  install(TARGETS allod_live EXPORT allodLiveTargets ${allod_libraries})
  install(EXPORT allodLiveTargets NAMESPACE allod:: DESTINATION ${allod_cmake_dir})
  install(CODE "
    if(EXISTS \"${PROJECT_BINARY_DIR}/liballod-live.so\")
      file(INSTALL \"${PROJECT_BINARY_DIR}/allod-live.pc\"
        DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${allod_pkgconfig_dir}\")
    endif()" COMPONENT development)
endif()

# The command, which needs Python when it is run. ALLOD_PROGRAMS: the folder of the programs that it
# runs, which the project in tools/programs builds.
set(ALLOD_PROGRAMS "" CACHE PATH "Folder of trace-tool, replay and allod-symbolizer, to be installed")
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME command)
configure_file(tools/packages/allod.in ${PROJECT_BINARY_DIR}/command/allod @ONLY)
configure_file(tools/packages/METADATA.in ${PROJECT_BINARY_DIR}/command/METADATA @ONLY)
install(PROGRAMS ${PROJECT_BINARY_DIR}/command/allod DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tools/allod DESTINATION ${allod_python_dir}
  PATTERN "__pycache__" EXCLUDE)
install(FILES ${PROJECT_BINARY_DIR}/command/METADATA
  DESTINATION ${allod_python_dir}/allod-${PROJECT_VERSION}.dist-info)
if(ALLOD_PROGRAMS)
  foreach(name IN ITEMS trace-tool replay allod-symbolizer)
    install(PROGRAMS ${ALLOD_PROGRAMS}/${name} DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/allod)
  endforeach()
endif()
set(allod_completions ${PROJECT_SOURCE_DIR}/tools/packages/completions)
install(FILES ${allod_completions}/allod.bash
  DESTINATION share/bash-completion/completions RENAME allod)
install(FILES ${allod_completions}/_allod DESTINATION ${allod_zsh_dir})
install(FILES ${allod_completions}/allod.fish DESTINATION share/fish/vendor_completions.d)

install(FILES ${PROJECT_SOURCE_DIR}/docs/man/allod.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/docs/man/liballod.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7
  COMPONENT libraries)

# ALLOD_LICENCES: a file with the licences of what is built in besides Allod.
set(ALLOD_LICENCES "" CACHE FILEPATH "File with the licences of others' code that is built in")
# ALLOD_DEBUG_FILES: a folder of debug information that was taken out of the libraries, by build ids.
set(ALLOD_DEBUG_FILES "" CACHE PATH "Folder of separate debug information, to be installed")
if(ALLOD_DEBUG_FILES)
  install(DIRECTORY ${ALLOD_DEBUG_FILES}/ DESTINATION lib/debug COMPONENT debug)
endif()
foreach(component IN LISTS allod_components)
  if(component STREQUAL "debug" AND NOT ALLOD_DEBUG_FILES)
    continue()
  endif()
  allod_doc_dir(${component} allod_doc)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${allod_doc}
    RENAME ${allod_licence_name} COMPONENT ${component})
  install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${allod_doc} COMPONENT ${component})
  if(ALLOD_LICENCES AND component MATCHES "^(libraries|command)$")
    install(FILES ${ALLOD_LICENCES} DESTINATION ${allod_doc} COMPONENT ${component})
  endif()
endforeach()
allod_doc_dir(development allod_doc)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${allod_doc} COMPONENT development)

if(PROJECT_IS_TOP_LEVEL)
  include(cmake/AllodPackages.cmake)
endif()

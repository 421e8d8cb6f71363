# The layout of an installation: libraries, headers, CMake package, pkg-config file, allod.o.

include(CMakePackageConfigHelpers)

set(allod_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/allod)

install(TARGETS
    allod_shared allod_static allod_debug_shared allod_hardened_shared
    allod_copies_shared allod_ends_shared allod_prefixed_shared allod_prefixed_static allod_header_only
  EXPORT allodTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
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
configure_file(cmake/allod.pc.in ${PROJECT_BINARY_DIR}/allod.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/allod.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

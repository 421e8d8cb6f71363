# An overlay port, which builds the repository that it lies in:
#   vcpkg install allod --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

# Static and shared libraries are for different uses, and the package has both.
set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  # Without the live page, which npm bundles from the network.
  OPTIONS -DALLOD_NODE=OFF
  # Optimised as it is measured. Another build for debugging would be the same.
  OPTIONS_RELEASE -DCMAKE_BUILD_TYPE=RelWithDebInfo
  OPTIONS_DEBUG -DCMAKE_BUILD_TYPE=RelWithDebInfo)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/allod)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")

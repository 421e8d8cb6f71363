# Packages by cpack, of the kind that ALLOD_PACKAGE says: for Debian and its relatives, for those that
# use rpm, and one archive. `./allod release` makes all of them from files without debug information.

if(NOT ALLOD_PACKAGE)
  return()
endif()

set(CPACK_GENERATOR ${ALLOD_PACKAGE})
set(CPACK_PACKAGE_NAME allod)
set(CPACK_PACKAGE_VENDOR "Allod contributors")
# Debian demands a name, and recommends an address. The project has none.
set(CPACK_PACKAGE_CONTACT "Allod contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Memory allocator for C and C++ programs")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES OFF)
set(CPACK_COMPONENTS_ALL ${allod_components})
if(NOT ALLOD_DEBUG_FILES)
  list(REMOVE_ITEM CPACK_COMPONENTS_ALL debug)
endif()

set(allod_about_libraries "the libraries")
set(allod_about_development "headers, static libraries, packages for CMake and pkg-config")
set(allod_about_command "the command that runs programs on it and shows their heaps")
set(allod_about_debug "debug information of the libraries")
set(allod_text_libraries
  "Preloaded or linked, liballod replaces malloc and its relatives. A debug library finds errors of
the heap, a hardened one stops attacks on them, and a live page shows the heap in a browser.")
set(allod_text_development "What programs need that are built with Allod, with examples.")
set(allod_text_command
  "allod run starts any program on Allod. Other commands find leaks, show the heaps of running
programs in a browser or in the terminal, and record and replay allocations.")
set(allod_text_debug "What debuggers need to name functions and lines within the libraries.")

# What each needs besides the C library.
set(allod_this_version "(= ${PROJECT_VERSION})")
set(allod_DEB_needs_libraries "libc6 (>= 2.17)")
set(allod_DEB_needs_development "liballod0 ${allod_this_version}")
string(JOIN ", " allod_DEB_needs_command
  "liballod0 ${allod_this_version}" "libc6 (>= 2.17)" "python3 (>= 3.9)" "python3-click (>= 8.1)"
  "python3-rich (>= 13)" "python3-pyelftools (>= 0.29)" "python3-protobuf (>= 3.21)")
set(allod_DEB_needs_debug "liballod0 ${allod_this_version}")
set(allod_RPM_needs_libraries "")
set(allod_RPM_needs_development "liballod0 = ${PROJECT_VERSION}")
string(JOIN ", " allod_RPM_needs_command
  "liballod0 = ${PROJECT_VERSION}" "python3 >= 3.9" "python3-click >= 8.1" "python3-rich"
  "python3-pyelftools" "python3-protobuf")
set(allod_RPM_needs_debug "liballod0 = ${PROJECT_VERSION}")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
# Which any version of dpkg reads.
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(allod_arch_x86_64 amd64)
set(allod_arch_aarch64 arm64)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${allod_arch_${CMAKE_SYSTEM_PROCESSOR}})
# Those who own and may read what: as in any package, whatever umask it was made with.
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE MIT)
set(CPACK_RPM_COMPRESSION_TYPE gzip)
set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
# Files are packed as they are, and nothing tells where or when.
string(JOIN "\n" CPACK_RPM_SPEC_MORE_DEFINE
  "%global __os_install_post %{nil}" "%global __spec_install_post %{nil}"
  "%global _build_id_links none" "%global debug_package %{nil}"
  "%global _buildhost localhost" "%global use_source_date_epoch_as_buildtime 1"
  "%global clamp_mtime_to_source_date_epoch 1")
# Folders that belong to others.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /usr/lib64/cmake /usr/lib64/pkgconfig /usr/libexec /usr/lib/debug /usr/lib/debug/.build-id
  /usr/share/bash-completion /usr/share/bash-completion/completions
  /usr/share/fish /usr/share/fish/vendor_completions.d
  /usr/share/zsh /usr/share/zsh/site-functions
  /usr/share/man /usr/share/man/man1 /usr/share/man/man7)

foreach(component IN LISTS allod_components)
  string(TOUPPER ${component} upper)
  list(FIND allod_components ${component} number)
  set(about "${CPACK_PACKAGE_DESCRIPTION_SUMMARY}: ${allod_about_${component}}")
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${allod_text_${component}}")
  list(GET allod_DEB_names ${number} name)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${allod_DEB_needs_${component}}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${allod_text_${component}}")
  list(GET allod_RPM_names ${number} name)
  set(CPACK_RPM_${upper}_PACKAGE_NAME ${name})
  set(CPACK_RPM_${upper}_PACKAGE_REQUIRES "${allod_RPM_needs_${component}}")
  set(CPACK_RPM_${upper}_PACKAGE_SUMMARY "${about}")
endforeach()
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_DEBUG_PACKAGE_SECTION debug)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS
  "llvm, python3-matplotlib, python3-numpy, python3-plotly")
# Compiled modules are made when the package is installed, and go with it.
set(allod_scripts ${PROJECT_SOURCE_DIR}/tools/packages)
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_EXTRA
  ${allod_scripts}/deb/postinst ${allod_scripts}/deb/prerm)
set(CPACK_DEBIAN_COMMAND_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_RPM_COMMAND_POST_INSTALL_SCRIPT_FILE ${allod_scripts}/rpm/post.sh)
set(CPACK_RPM_COMMAND_PRE_UNINSTALL_SCRIPT_FILE ${allod_scripts}/rpm/preun.sh)
# The loader finds the libraries by its cache.
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_CONTROL_EXTRA ${allod_scripts}/deb/triggers)
set(CPACK_RPM_LIBRARIES_POST_INSTALL_SCRIPT_FILE ${allod_scripts}/rpm/ldconfig.sh)
set(CPACK_RPM_LIBRARIES_POST_UNINSTALL_SCRIPT_FILE ${allod_scripts}/rpm/ldconfig.sh)

# One archive with all of it.
if(ALLOD_PACKAGE STREQUAL "TGZ")
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  set(libc "")
  if(NOT ALLOD_HAS_GLIBC)
    set(libc -musl)
  endif()
  set(CPACK_PACKAGE_FILE_NAME allod-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}${libc})
endif()
include(CPack)

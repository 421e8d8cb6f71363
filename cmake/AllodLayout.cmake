# Where things are installed: as on any system, or as in a package of a kind.
set(ALLOD_PACKAGE "" CACHE STRING "Kind of packages that cpack is to make: empty, DEB, RPM or TGZ")
set_property(CACHE ALLOD_PACKAGE PROPERTY STRINGS "" DEB RPM TGZ)

# The interpreter of the command allod, and where its modules are.
set(allod_python "/usr/bin/env python3")
set(allod_python_dir share/allod/python)
set(allod_zsh_dir share/zsh/site-functions)
set(allod_licence_name LICENSE)
if(ALLOD_PACKAGE MATCHES "^(DEB|RPM)$")
  set(CMAKE_INSTALL_PREFIX /usr)
  # That of the system, which has what the package depends on.
  set(allod_python /usr/bin/python3)
endif()
if(ALLOD_PACKAGE STREQUAL "DEB")
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE})
  set(allod_python_dir lib/python3/dist-packages)
  set(allod_zsh_dir share/zsh/vendor-completions)
  set(allod_licence_name copyright)
elseif(ALLOD_PACKAGE STREQUAL "RPM")
  set(CMAKE_INSTALL_LIBDIR lib64)
elseif(ALLOD_PACKAGE STREQUAL "TGZ")
  set(CMAKE_INSTALL_LIBDIR lib)
elseif(ALLOD_PACKAGE)
  message(FATAL_ERROR "ALLOD_PACKAGE is '${ALLOD_PACKAGE}'; it can be DEB, RPM, TGZ or empty")
endif()
include(GNUInstallDirs)

# The packages, by the components of the installation.
set(allod_components libraries development command debug)
set(allod_DEB_names liballod0 liballod-dev allod allod-dbg)
set(allod_RPM_names liballod0 liballod-devel allod allod-debuginfo)

# allod_doc_dir(COMPONENT VARIABLE): where the documents of a component are.
function(allod_doc_dir component variable)
  if(DEFINED allod_${ALLOD_PACKAGE}_names)
    list(FIND allod_components ${component} number)
    list(GET allod_${ALLOD_PACKAGE}_names ${number} name)
    set(${variable} share/doc/${name} PARENT_SCOPE)
  else()
    set(${variable} ${CMAKE_INSTALL_DOCDIR} PARENT_SCOPE)
  endif()
endfunction()

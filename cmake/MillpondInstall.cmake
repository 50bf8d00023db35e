# The installed package. Folders add their own targets and headers, EXPORT MillpondTargets; find_package(Millpond) gives
# Millpond::abi (the C headers), Millpond::handshake and Millpond::client (C++ hosts), and where the plugin is.
include(CMakePackageConfigHelpers)

set(MILLPOND_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Millpond)
set(MILLPOND_PLUGIN_FILE ${CMAKE_INSTALL_LIBDIR}/libmillpond.so)
set(MILLPOND_PROTO_FILE ${CMAKE_INSTALL_DATADIR}/millpond/handshake.proto)
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/MillpondConfig.cmake.in ${PROJECT_BINARY_DIR}/MillpondConfig.cmake
  INSTALL_DESTINATION ${MILLPOND_PACKAGE_DIR}
  PATH_VARS MILLPOND_PLUGIN_FILE MILLPOND_PROTO_FILE)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MillpondConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MillpondConfig.cmake ${PROJECT_BINARY_DIR}/MillpondConfigVersion.cmake
        DESTINATION ${MILLPOND_PACKAGE_DIR})
install(EXPORT MillpondTargets NAMESPACE Millpond:: DESTINATION ${MILLPOND_PACKAGE_DIR})

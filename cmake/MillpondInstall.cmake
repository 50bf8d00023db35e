# Install and export: find_package(Millpond) gives Millpond::abi, Millpond::client and the plugin's place.
include(CMakePackageConfigHelpers)
# Filled in by the folders through install(TARGETS ... EXPORT MillpondTargets).

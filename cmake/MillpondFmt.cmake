# millpond_fmt: {fmt}, compiled once into a static library that can go into a shared object.
find_package(fmt 9 REQUIRED GLOBAL)
add_library(millpond_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt_once.cc)
target_include_directories(millpond_fmt SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(millpond_fmt PRIVATE millpond_flags)

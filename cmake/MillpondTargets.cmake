# Flags that every target has, and the functions that make targets.
set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Threads REQUIRED)

add_library(millpond_flags INTERFACE)
# -ffp-contract=off: a fused multiply-add happens where the source says so and nowhere else (bit-identity).
target_compile_options(
  millpond_flags
  INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Werror;-ffp-contract=off;-ffunction-sections;-fdata-sections;-fno-math-errno>
            $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # gcc 12 warns of std::string's own code (GCC bug 105651).
  target_compile_options(millpond_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # It takes a source that another one includes for a header.
  target_compile_options(millpond_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
if(MILLPOND_SANITIZE)
  target_compile_options(millpond_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${MILLPOND_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>)
  target_link_options(millpond_flags INTERFACE -fsanitize=${MILLPOND_SANITIZE})
endif()

# millpond_library(name SOURCES ... DEPENDS ...): a static, position-independent library with the house flags.
function(millpond_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE millpond_flags)
endfunction()

# millpond_test(name LABELS cpu ... SOURCES ... DEPENDS ... [TIMEOUT s] [SERIAL regex]): a GoogleTest program, one ctest
# entry a test. Tests that match SERIAL compute in one thread and get the label `serial`: TSan has nothing to find in them.
function(millpond_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;SERIAL" "SOURCES;DEPENDS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest GTest::gtest_main millpond_flags)
  gtest_discover_tests(
    ${name}
    TEST_PREFIX "${name}."
    DISCOVERY_MODE PRE_TEST
    TEST_FILTER "-Campaign.*" # minutes to hours: tests/campaign.sh runs them
    TEST_LIST ${name}_cases
    PROPERTIES TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
  # It would take the second of two labels for the name of a property, and forget all that follow.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [=[
foreach(case IN LISTS @name@_cases)
  set(labels "@arg_LABELS@")
  if(NOT "@arg_SERIAL@" STREQUAL "" AND case MATCHES "@arg_SERIAL@")
    list(APPEND labels serial)
  endif()
  set_tests_properties("${case}" PROPERTIES LABELS "${labels}")
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

# Tests in Python: the interpreter, what it must have, and python_test.
set(MILLPOND_PYTHON "" CACHE STRING "Python interpreter of the tests, with tests/python/requirements.txt installed")

set(MILLPOND_PYTHON_SKIP "")
if(NOT MILLPOND_PYTHON)
  set(MILLPOND_PYTHON_SKIP "no Python was named (-DMILLPOND_PYTHON=..., with tests/python/requirements.txt installed)")
elseif(NOT TARGET millpond)
  set(MILLPOND_PYTHON_SKIP "this build has no plugin")
elseif(MILLPOND_SANITIZE MATCHES "thread")
  set(MILLPOND_PYTHON_SKIP "Python itself is not built with ThreadSanitizer")
elseif(MILLPOND_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(MILLPOND_PYTHON_SKIP "clang links the sanitizers' runtime into programs, and Python has none")
else()
  execute_process(COMMAND ${MILLPOND_PYTHON} -c "import pytest, numpy, google.protobuf.message_factory as f; f.GetMessageClass"
                  RESULT_VARIABLE lacking OUTPUT_QUIET ERROR_QUIET)
  if(lacking)
    set(MILLPOND_PYTHON_SKIP "${MILLPOND_PYTHON} lacks pytest, numpy or a protobuf of 4.22 or newer")
  endif()
endif()

# A sanitized plugin finds its runtime in the process; leaks are not looked for, since the interpreter has its own.
set(MILLPOND_PYTHON_ENVIRONMENT PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=${PROJECT_SOURCE_DIR}/host_adapters/python)
if(MILLPOND_SANITIZE)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE asan
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND MILLPOND_PYTHON_ENVIRONMENT LD_PRELOAD=${asan} ASAN_OPTIONS=detect_leaks=0)
endif()

# python_test(name file labels...): one ctest entry, python.<name>, of a pytest file in the calling folder, or a list of them.
function(python_test name file)
  if(MILLPOND_PYTHON_SKIP)
    add_test(NAME python.${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: ${MILLPOND_PYTHON_SKIP}")
    set_tests_properties(python.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
  else()
    add_test(NAME python.${name} COMMAND ${MILLPOND_PYTHON} -m pytest -q -rs -p no:cacheprovider ${file}
             WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    set_tests_properties(python.${name} PROPERTIES ENVIRONMENT "${MILLPOND_PYTHON_ENVIRONMENT};MILLPOND_PLUGIN=$<TARGET_FILE:millpond>")
  endif()
  # 5: all of the file skipped, as the GPU tests do where no device is.
  set_tests_properties(python.${name} PROPERTIES LABELS "${ARGN}" TIMEOUT 600 SKIP_RETURN_CODE 5)
endfunction()

# Installs this build to a fresh prefix, configures examples/embed against it, builds it, runs it; also the installed
# millpond-sample, which must find the installed plugin by itself. Needs the build's targets to be there.
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
# run(COMMAND...): fails the test with the command's output where it fails. The output is in `output`.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output
                  WORKING_DIRECTORY ${WORK})
  if(NOT result EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

unset(ENV{MILLPOND_PLUGIN})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
foreach(file include/millpond/plugin.h include/millpond/error.hpp include/millpond/client/plugin.h
             include/millpond/handshake.pb.h share/millpond/handshake.proto ${LIBDIR}/libmillpond.so
             ${LIBDIR}/libmillpond_client.a ${LIBDIR}/cmake/Millpond/MillpondConfig.cmake bin/millpond-sample)
  if(NOT EXISTS ${WORK}/prefix/${file})
    message(FATAL_ERROR "not installed: ${file}")
  endif()
endforeach()

# A copy of the example, so that nothing of the tree can be reached by a relative path.
file(COPY ${SOURCE}/examples/embed DESTINATION ${WORK}/source)
run(${CMAKE_COMMAND} -S ${WORK}/source/embed -B ${WORK}/build -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_C_COMPILER=${CC} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=-Wall\ -Wextra\ -Wpedantic\ -Werror)
run(${CMAKE_COMMAND} --build ${WORK}/build)
execute_process(COMMAND ${WORK}/build/embed ${WORK}/unmounted RESULT_VARIABLE code ERROR_VARIABLE told)
if(code EQUAL 0 OR EXISTS ${WORK}/unmounted OR NOT told MATCHES "unmounted")
  message(FATAL_ERROR "embed made its scratch directory, or did not say what is wrong (${code}):\n${told}")
endif()
execute_process(COMMAND ${WORK}/build/embed RESULT_VARIABLE code ERROR_VARIABLE told)
if(NOT code EQUAL 2 OR NOT told MATCHES "usage")
  message(FATAL_ERROR "embed without arguments ended with ${code}:\n${told}")
endif()
file(MAKE_DIRECTORY ${WORK}/scratch)
run(${WORK}/build/embed ${WORK}/scratch)
string(FIND "${output}" "${WORK}/prefix/${LIBDIR}/libmillpond.so" opened)
string(FIND "${output}" "went on with the same bits" same)
if(opened EQUAL -1 OR same EQUAL -1)
  message(FATAL_ERROR "embed said:\n${output}")
endif()
message(STATUS "${output}")

file(WRITE ${WORK}/text "")
foreach(line RANGE 300)
  math(EXPR other "${line} * 7919 % 1009")
  file(APPEND ${WORK}/text "line ${line} of the text, and ${other} more.\n")
endforeach()
run(${WORK}/prefix/bin/millpond-sample --text ${WORK}/text --scratch ${WORK}/scratch --steps 4 --hidden 32 --batch 16
    --embedding 8 --evaluation-bytes 256 --quiet --compare)
string(FIND "${output}" "/prefix/${LIBDIR}/libmillpond.so" opened)
if(opened EQUAL -1)
  message(FATAL_ERROR "the installed sample did not find the installed plugin:\n${output}")
endif()

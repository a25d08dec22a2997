# Installs the build into an empty prefix, checks what arrived there, and builds and runs examples/outside_project with it.
# Arguments (-D): BUILD_DIR, WORK_DIR (emptied), PROJECT_DIR, GENERATOR, COMPILER.
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}\n${output}")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})

file(GLOB headers RELATIVE ${prefix}/include ${prefix}/include/*)
if(NOT headers STREQUAL "moetune")
  message(FATAL_ERROR "include/ of the package holds more or less than moetune/: ${headers}")
endif()
file(GLOB_RECURSE package_files ${prefix}/*.cmake)
foreach(file IN LISTS package_files)
  file(STRINGS ${file} leaks REGEX "fmt::|nlohmann|GTest::|moetune_options|${BUILD_DIR}")
  if(leaks)
    message(FATAL_ERROR "${file} asks its users for what is private to the build:\n${leaks}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${PROJECT_DIR} -B ${WORK_DIR}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run(${WORK_DIR}/build/outside)
run(${WORK_DIR}/build/outside_c)

# The same program without CMake.
find_program(pkg_config NAMES pkg-config pkgconf)
find_program(c_compiler NAMES cc gcc clang)
if(pkg_config AND c_compiler)
  file(GLOB_RECURSE pc_file ${prefix}/*/moetune.pc)
  get_filename_component(pc_folder ${pc_file} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${pc_folder})
  execute_process(COMMAND ${pkg_config} --cflags --libs moetune OUTPUT_VARIABLE flags RESULT_VARIABLE result
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "pkg-config does not find moetune in ${pc_folder}")
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  get_filename_component(library_folder ${pc_folder} DIRECTORY)
  run(${c_compiler} ${PROJECT_DIR}/main.c ${flags} -Wl,-rpath,${library_folder} -o ${WORK_DIR}/outside_pc)
  run(${WORK_DIR}/outside_pc)
endif()

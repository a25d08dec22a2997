# One library per folder of src/ and one test program per folder of tests/: every .cc in the folder belongs to it.

# What every target of this project is compiled with, and nobody else's.
add_library(moetune_options INTERFACE)
target_compile_options(moetune_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
if(MOETUNE_WERROR)
  target_compile_options(moetune_options INTERFACE -Werror)
endif()
if(MOETUNE_SANITIZE)
  target_compile_options(moetune_options INTERFACE -fsanitize=${MOETUNE_SANITIZE} -fno-omit-frame-pointer
                                                   -fno-sanitize-recover=all)
  if(MOETUNE_SANITIZE MATCHES undefined)
    # Null pointers and objects that are too small are found by the address sanitizer; looking for them twice takes a
    # third of the compiler's time.
    target_compile_options(moetune_options INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
  target_link_options(moetune_options INTERFACE -fsanitize=${MOETUNE_SANITIZE})
endif()

# moetune_library(NAME [DEPS targets...] [PRIVATE_DEPS targets...] [HEADER_DEPS targets...])
#
# The static library moetune::NAME from every .cc of the calling folder; with none yet, an interface library.
# DEPS          what includers of its headers need too.
# PRIVATE_DEPS  what only its own .cc files use; a program that links the installed package links it as well.
# HEADER_DEPS   header-only libraries: seen by everything inside this build, never asked of a user of the package.
function(moetune_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS;PRIVATE_DEPS;HEADER_DEPS")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(target moetune_${name})
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE_DEPS} $<BUILD_INTERFACE:moetune_options>)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(moetune::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope}
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} ${scope} ${ARG_DEPS})
  foreach(dependency IN LISTS ARG_HEADER_DEPS)
    target_link_libraries(${target} ${scope} $<BUILD_INTERFACE:${dependency}>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY MOETUNE_LIBRARIES ${target})
endfunction()

# What `cmake --build --preset tsan` builds: the test programs that have a test labelled "threads".
add_custom_target(threads_tests)

# moetune_test(NAME [DEPS targets...]): builds every .cc of the calling folder into NAME_tests and registers each of its
# tests as NAME.Suite.Test. A suite's name gives its label, which says where the test runs (tests/README.md):
#   ...Threads...  threads  also under the thread sanitizer
#   ...Slow...     slow     never under a sanitizer
#   ...Timing...   timing   never under a sanitizer, and never beside another test
function(moetune_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPS")
  set(target ${name}_tests)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE ${ARG_DEPS} moetune_options GTest::gtest GTest::gtest_main GTest::gmock)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)

  set(discover ${target} TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${discover} TEST_FILTER "-*Threads*.*:*Slow*.*:*Timing*.*")
  gtest_discover_tests(${discover} TEST_FILTER "*Threads*.*" PROPERTIES LABELS threads)
  gtest_discover_tests(${discover} TEST_FILTER "*Slow*.*" PROPERTIES LABELS slow)
  gtest_discover_tests(${discover} TEST_FILTER "*Timing*.*" PROPERTIES LABELS timing RUN_SERIAL ON)

  foreach(source IN LISTS sources)
    file(STRINGS ${source} threads_suites REGEX "^(TYPED_)?TEST(_[FP])?\\([A-Za-z0-9_]*Threads")
    if(threads_suites)
      add_dependencies(threads_tests ${target})
    endif()
  endforeach()
endfunction()

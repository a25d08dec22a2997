# moetune::moetune, the whole library behind include/moetune, and what `cmake --install` leaves for find_package(moetune).
#
# Everything that moetune_library() made so far belongs to it. The installed headers are the public ones only, and an
# installed target asks for nothing but threads: fmt and nlohmann-json are compiled in.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY MOETUNE_LIBRARIES)
add_library(moetune INTERFACE)
add_library(moetune::moetune ALIAS moetune)
target_link_libraries(moetune INTERFACE ${libraries})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moetune)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/moetuneConfig.cmake.in ${PROJECT_BINARY_DIR}/moetuneConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS moetune ${libraries} EXPORT moetuneTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moetuneTargets NAMESPACE moetune:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/moetuneConfig.cmake ${PROJECT_BINARY_DIR}/moetuneConfigVersion.cmake
        DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/moetune DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

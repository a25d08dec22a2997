# moetune_embed_sources(TARGET FOLDER dir NAMES_FROM root FUNCTION ns::name HEADER header)
#
# Compiles the text of every .cuh and .h file below FOLDER (of the calling folder) into TARGET, which gets a function of that
# name, declared in HEADER: std::span<const EmbeddedSource> name(). A file is called by its path from NAMES_FROM, as
# includes write it. Editing, adding or removing a file rebuilds what is embedded.
function(moetune_embed_sources target)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "FOLDER;NAMES_FROM;FUNCTION;HEADER" "")
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_FOLDER})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cuh ${folder}/*.h)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_${ARG_FOLDER}.cc)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/embedded_${ARG_FOLDER}.txt)
  list(JOIN sources "\n" lines)
  file(GENERATE OUTPUT ${list} CONTENT "${lines}\n")
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D LIST=${list} -D ROOT=${ARG_NAMES_FROM} -D FUNCTION=${ARG_FUNCTION}
            -D HEADER=${ARG_HEADER} -D OUTPUT=${output} -P ${PROJECT_SOURCE_DIR}/cmake/embed_sources.cmake
    DEPENDS ${sources} ${list} ${PROJECT_SOURCE_DIR}/cmake/embed_sources.cmake
    COMMENT "Embedding device code" VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

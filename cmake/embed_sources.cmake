# Writes OUTPUT, a C++ file that holds the text of every file named in LIST; see EmbedSources.cmake.
file(STRINGS ${LIST} sources)
string(REGEX MATCH "^(.*)::([^:]+)$" matched ${FUNCTION})
set(namespace ${CMAKE_MATCH_1})
set(function ${CMAKE_MATCH_2})

set(arrays "")
set(entries "")
set(index 0)
foreach(source IN LISTS sources)
  file(RELATIVE_PATH name ${ROOT} ${source})
  file(READ ${source} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX REPLACE "(('[^']*',){24})" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "constexpr char kText${index}[] = {\n${bytes}'\\0'};\n")
  string(APPEND entries "    {\"${name}\", {kText${index}, sizeof(kText${index}) - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()

file(WRITE ${OUTPUT}
"#include \"${HEADER}\"\n\nnamespace ${namespace} {\nnamespace {\n\n${arrays}\nconstexpr EmbeddedSource kSources[] = {\n${entries}};\n
}  // namespace\n\nstd::span<const EmbeddedSource> ${function}() { return kSources; }\n\n}  // namespace ${namespace}\n")

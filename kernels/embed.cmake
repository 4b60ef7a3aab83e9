# Writes OUT: a table of every .cl, .h and .inc below ROOT as byte arrays: {path below kernels/, bytes, length}.
file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/*.cl ${ROOT}/*.h ${ROOT}/*.inc)
list(REMOVE_ITEM files embedded.h) # the table's own declaration, for the host only
list(SORT files)
set(arrays "")
set(rows "")
set(i 0)
foreach(file ${files})
  file(READ ${ROOT}/${file} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR length "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const unsigned char file_${i}[] = {${bytes}0};\n")
  string(APPEND rows "    {\"${file}\", (const char *)file_${i}, ${length}},\n")
  math(EXPR i "${i} + 1")
endforeach()
file(WRITE ${OUT} "/* Generated from kernels/ by embed.cmake. */
#include \"kernels/embedded.h\"
${arrays}
const struct kernel_file kernel_files[] = {
${rows}    {0, 0, 0}};
const size_t kernel_file_count = ${i};
")

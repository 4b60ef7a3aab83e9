# Writes OUT: the file IN as a byte array NAME with its length NAME_length.
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Generated from ${NAME} by embed.cmake. */
#include \"server/openapi.h\"
const char ${NAME}[] = {${bytes}0};
const size_t ${NAME}_length = ${length};
")

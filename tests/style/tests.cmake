# The tree's own rules: layering, format and banned words, kernels' syntax, installation. Each check is also shown to
# catch a fault.
add_test(NAME layers COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -P ${CMAKE_CURRENT_SOURCE_DIR}/layers.cmake)
add_test(NAME style COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/style/style.py ${CMAKE_SOURCE_DIR})
add_test(NAME style_catches COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/style/style.py --self-test)
add_test(NAME readme COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/style/readme.py)
set(style_tests layers style style_catches readme)

# kernel_syntax, part of `all` where clang is installed: every kernel file as every row of kernels.def builds it.
find_program(OINFER_CLANG clang)
if(OINFER_CLANG AND CMAKE_C_COMPILER_ID STREQUAL GNU AND NOT OINFER_SANITIZE)   # once is enough
  add_executable(kernel_rows ${CMAKE_CURRENT_SOURCE_DIR}/style/kernel_rows.c)
  target_link_libraries(kernel_rows PRIVATE oinfer_flags)
  set(kernel_rows ${CMAKE_CURRENT_BINARY_DIR}/kernel_rows.txt)
  add_custom_command(OUTPUT ${kernel_rows} COMMAND kernel_rows > ${kernel_rows} DEPENDS kernel_rows VERBATIM)
  file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/kernels
    ${CMAKE_SOURCE_DIR}/kernels/*.cl)
  list(REMOVE_ITEM kernel_sources common.cl)
  file(GLOB_RECURSE kernel_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/*.h ${CMAKE_SOURCE_DIR}/kernels/*.inc
    ${CMAKE_SOURCE_DIR}/kernels/common.cl)
  set(builtins ${CMAKE_CURRENT_BINARY_DIR}/kernel_builtins)
  add_custom_command(OUTPUT ${builtins}/any_CL1.2.pch
    COMMAND ${CMAKE_COMMAND} -DCLANG=${OINFER_CLANG} -DBUILTINS=${builtins}
      -P ${CMAKE_CURRENT_SOURCE_DIR}/style/kernel_syntax.cmake
    DEPENDS ${OINFER_CLANG} style/kernel_syntax.cmake VERBATIM)
  set(stamps "")
  foreach(file ${kernel_sources})
    string(REPLACE "/" "_" stamp ${file})
    set(stamp ${CMAKE_CURRENT_BINARY_DIR}/${stamp}.checked)
    add_custom_command(OUTPUT ${stamp}
      COMMAND ${CMAKE_COMMAND} -DCLANG=${OINFER_CLANG} -DROOT=${CMAKE_SOURCE_DIR}/kernels -DFILE=${file}
        -DROWS=${kernel_rows} -DBUILTINS=${builtins} -DSTAMP=${stamp} -P ${CMAKE_CURRENT_SOURCE_DIR}/style/kernel_syntax.cmake
      DEPENDS ${CMAKE_SOURCE_DIR}/kernels/${file} ${kernel_headers} ${kernel_rows} style/kernel_syntax.cmake
        ${builtins}/any_CL1.2.pch
      COMMENT "Checking kernels/${file}" VERBATIM)
    list(APPEND stamps ${stamp})
  endforeach()
  add_custom_target(kernel_syntax ALL DEPENDS ${stamps})

  # D3: a double literal does not pass; nor does what else many devices lack
  set(bad_kernels ${CMAKE_CURRENT_BINARY_DIR}/bad_kernels)
  file(WRITE ${bad_kernels}/double.cl "kernel void x(global float *p) { *p *= 1.5; }\n")
  file(WRITE ${bad_kernels}/half.cl "kernel void x(global half *p) { *p = *p + *p; }\n")
  file(WRITE ${bad_kernels}/new.cl "kernel void x(global int *p) { *p = sub_group_any(1); }\n")
  string(REPEAT "  *p += 1;\n" 8000 statements)   # S31
  file(WRITE ${bad_kernels}/large.cl "kernel void x(global int *p) {\n${statements}}\n")
  foreach(bad double half new large)
    add_test(NAME kernel_syntax_catches_${bad} COMMAND ${CMAKE_COMMAND} -DCLANG=${OINFER_CLANG} -DROOT=${bad_kernels}
      -DFILE=${bad}.cl -P ${CMAKE_CURRENT_SOURCE_DIR}/style/kernel_syntax.cmake)
    set_tests_properties(kernel_syntax_catches_${bad} PROPERTIES WILL_FAIL TRUE)
    list(APPEND style_tests kernel_syntax_catches_${bad})
  endforeach()
endif()

add_test(NAME install COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DSTAGE=${CMAKE_CURRENT_BINARY_DIR}/stage
  -P ${CMAKE_CURRENT_SOURCE_DIR}/style/install.cmake)
list(APPEND style_tests install)
set_tests_properties(${style_tests} PROPERTIES LABELS style TIMEOUT 120)

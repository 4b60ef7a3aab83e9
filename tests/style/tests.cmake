# The tree's own rules: layering, format and banned words, kernels' syntax, installation. Each check is also shown to
# catch a fault.
add_test(NAME layers COMMAND ${CMAKE_COMMAND} -DROOT=${CMAKE_SOURCE_DIR} -P ${CMAKE_CURRENT_SOURCE_DIR}/layers.cmake)
add_test(NAME style COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/style/style.py ${CMAKE_SOURCE_DIR})
add_test(NAME style_catches COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/style/style.py --self-test)
set(style_tests layers style style_catches)

if(OINFER_CLANG)
  set(bad_kernels ${CMAKE_CURRENT_BINARY_DIR}/bad_kernels)
  file(WRITE ${bad_kernels}/double.cl "kernel void x(global float *p) { *p *= 1.5; }\n")
  file(WRITE ${bad_kernels}/half.cl "kernel void x(global half *p) { *p = *p + *p; }\n")
  file(WRITE ${bad_kernels}/new.cl "kernel void x(global int *p) { *p = sub_group_any(1); }\n")
  foreach(bad double half new)
    add_test(NAME kernel_syntax_catches_${bad} COMMAND ${CMAKE_COMMAND} -DCLANG=${OINFER_CLANG} -DROOT=${bad_kernels}
      -DFILE=${bad}.cl -P ${CMAKE_SOURCE_DIR}/kernels/syntax.cmake)
    set_tests_properties(kernel_syntax_catches_${bad} PROPERTIES WILL_FAIL TRUE)
    list(APPEND style_tests kernel_syntax_catches_${bad})
  endforeach()
endif()

add_test(NAME install COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DSTAGE=${CMAKE_CURRENT_BINARY_DIR}/stage
  -P ${CMAKE_CURRENT_SOURCE_DIR}/style/install.cmake)
list(APPEND style_tests install)
set_tests_properties(${style_tests} PROPERTIES LABELS style TIMEOUT 120)

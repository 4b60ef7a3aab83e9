# Checks that one kernel file compiles with the defaults of its tunables, as OpenCL C 1.2 and 3.0, without warnings:
#   cmake -DCLANG=clang -DROOT=kernels -DFILE=norm/plain.cl [-DSTAMP=file to touch] -P syntax.cmake
# The program text is what the engine builds: common.cl, quant.h, params.h, the file. Extensions are off, so a double
# literal, half arithmetic or a subgroup outside a guard is an error: many devices have none of them.
cmake_minimum_required(VERSION 3.25)
set(prefix "")
foreach(part common.cl quant.h params.h)
  if(EXISTS ${ROOT}/${part})
    list(APPEND prefix -include ${part})
  endif()
endforeach()
# Inline PTX is only known to NVIDIA's target, which clang knows as OpenCL C 1.2; `asm` is a keyword there.
set(standards CL1.2 CL3.0)
set(target "")
if(FILE MATCHES "^nvidia/")
  set(standards CL1.2)
  set(target -target nvptx64-nvidia-nvcl -fgnu-keywords)
endif()
foreach(standard ${standards})
  set(extensions "-all")
  if(standard STREQUAL CL3.0)   # where "none" would take images from the default header too
    set(extensions "-cl_khr_fp64,-__opencl_c_fp64,-cl_khr_fp16")
  endif()
  execute_process(
    COMMAND ${CLANG} -x cl -cl-std=${standard} ${target} -fsyntax-only -cl-no-stdinc -Xclang -finclude-default-header
      -Xclang -cl-ext=${extensions} -Wall -Werror -Wno-unused-function -I ${ROOT} ${prefix} ${FILE}
    WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE failed ERROR_VARIABLE text)
  if(failed)
    message(FATAL_ERROR "${FILE} as ${standard}:\n${text}")
  endif()
endforeach()
if(STAMP)
  file(TOUCH ${STAMP})
endif()

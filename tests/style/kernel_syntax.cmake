# Checks that one kernel file compiles without warnings as OpenCL C 1.2 and 3.0, for every row of kernels.def that names it
# (ROWS: the output of kernel_rows) or, where none does, with the options after "Checked with:" in it, or its own defaults:
#   cmake -DCLANG=clang -DROOT=kernels -DFILE=norm/plain.cl [-DROWS=rows.txt] [-DBUILTINS=folder] [-DSTAMP=file to touch]
#     -P kernel_syntax.cmake
# Most of the time of a check is clang's own header of built-in functions: without FILE, it is precompiled into BUILTINS.
# The program text is what the engine builds: common.cl, quant.h, params.h, the file. Extensions are off, so a double
# literal, half arithmetic or a subgroup outside a guard is an error: many devices have none of them.
# And that it is small once preprocessed: compilers of small devices run out of memory on large programs. Those that decode in
# one launch, of CPUs and NVIDIA alone, are larger.
cmake_minimum_required(VERSION 3.25)
set(prefix "")
foreach(part common.cl quant.h params.h)
  if(EXISTS ${ROOT}/${part})
    list(APPEND prefix -include ${part})
  endif()
endforeach()
set(program_bytes 65536)
# What is compiled for which target, with which standards.
set(x86_files "^cpu/")         # inline asm of x86
set(x86_target -target x86_64-linux-gnu -march=cooperlake)
set(x86_standards CL1.2 CL3.0)
set(nvidia_files "^nvidia/")   # inline PTX: clang knows NVIDIA's target as OpenCL C 1.2; `asm` is a keyword there
set(nvidia_target -target nvptx64-nvidia-nvcl -fgnu-keywords)
set(nvidia_standards CL1.2)
set(any_target "")
set(any_standards CL1.2 CL3.0)

set(extensions_CL1.2 "-all")
set(extensions_CL3.0 "-cl_khr_fp64,-__opencl_c_fp64,-cl_khr_fp16")   # where "none" would take images from the header too

if(NOT FILE)
  file(MAKE_DIRECTORY ${BUILTINS})
  file(WRITE ${BUILTINS}/empty.cl "")
  foreach(kind any x86 nvidia)
    foreach(standard ${${kind}_standards})
      execute_process(
        COMMAND ${CLANG} -x cl-header -cl-std=${standard} ${${kind}_target} -cl-no-stdinc -Xclang -finclude-default-header
          -Xclang -cl-ext=${extensions_${standard}} ${BUILTINS}/empty.cl -o ${BUILTINS}/${kind}_${standard}.pch
        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
  endforeach()
  return()
endif()

set(kind any)
foreach(other x86 nvidia)
  if(FILE MATCHES "${${other}_files}")
    set(kind ${other})
  endif()
endforeach()
set(target ${${kind}_target})

set(builds "")
if(ROWS)
  file(STRINGS ${ROWS} builds)
  list(FILTER builds INCLUDE REGEX "^${FILE}:")
  list(TRANSFORM builds REPLACE "^[^:]*:" "")
  list(REMOVE_DUPLICATES builds)
endif()
if(builds STREQUAL "")   # programs that the engine writes options for at run time say some in their first comment
  file(READ ${ROOT}/${FILE} head LIMIT 4096)
  set(builds " ")
  if(head MATCHES "Checked with:([^.]*)\\.")
    string(REGEX REPLACE "[*\n ]+" " " builds "${CMAKE_MATCH_1}")
  endif()
endif()
foreach(build ${builds})
  foreach(standard ${${kind}_standards})
    set(extensions ${extensions_${standard}})
    if(build MATCHES "CAP_SUBGROUPS")
      if(standard STREQUAL CL1.2)   # sub-groups came later
        continue()
      endif()
      string(APPEND extensions ",+cl_khr_subgroups,+__opencl_c_subgroups")
    endif()
    if(build MATCHES "CAP_HALF")
      string(APPEND extensions ",+cl_khr_fp16")
    endif()
    set(builtins -Xclang -finclude-default-header)
    if(BUILTINS AND extensions STREQUAL extensions_${standard})
      list(PREPEND builtins -Xclang -include-pch -Xclang ${BUILTINS}/${kind}_${standard}.pch)
    endif()
    separate_arguments(options UNIX_COMMAND "${build}")
    set(clang ${CLANG} -x cl -cl-std=${standard} ${target} -cl-no-stdinc -I ${ROOT} ${options} ${prefix})
    execute_process(
      COMMAND ${clang} -fsyntax-only ${builtins} -Xclang -cl-ext=${extensions} -Wall -Werror
        -Wno-unused-function ${FILE}
      WORKING_DIRECTORY ${ROOT} RESULT_VARIABLE failed ERROR_VARIABLE text)
    if(failed)
      message(FATAL_ERROR "${FILE} as ${standard} with ${build}:\n${text}")
    endif()
    if(standard STREQUAL CL3.0 AND NOT build MATCHES "CAP_SUBGROUPS")
      continue()   # the same text as before
    endif()
    execute_process(COMMAND ${clang} -E -P ${FILE} WORKING_DIRECTORY ${ROOT} OUTPUT_VARIABLE program ERROR_QUIET)
    string(LENGTH "${program}" length)
    if(length EQUAL 0 OR (length GREATER program_bytes AND NOT FILE MATCHES "/decode"))
      message(FATAL_ERROR "${FILE} with ${build}: a program of ${length} bytes, at most ${program_bytes}")
    endif()
  endforeach()
endforeach()
if(STAMP)
  file(TOUCH ${STAMP})
endif()

# The layering of the tree: which folder may include what. Run by ctest: cmake -DROOT=<tree> -P layers.cmake
# A file obeys the longest FOLDER that its path begins with. Headers named in quotes are ours and must begin with one
# of the row's prefixes; headers of the libraries below may only be included under the folders listed with them.
cmake_minimum_required(VERSION 3.25)

# FOLDER|prefixes of our own headers
set(rules
  "engine/base/|engine/base/"
  "engine/tensor/|engine/base/ engine/tensor/ kernels/"
  "engine/text/|engine/base/ engine/text/"
  "engine/cl/|engine/base/ engine/tensor/ engine/cl/ kernels/"
  "engine/ops/|engine/base/ engine/tensor/ engine/cl/ engine/ops/ engine/tune/ kernels/"
  "engine/tune/|engine/base/ engine/tensor/ engine/cl/ engine/ops/ engine/tune/ kernels/"
  "engine/|engine/ kernels/"
  "config/|config/ engine/base/"
  "kernels/|kernels/"
  "server/cli/|server/cli/ server/ops/ server/fault.h server/json.h server/tune_file.h config/ engine/"
  "server/ops/|server/ops/ server/fault.h server/json.h server/json_check.h engine/base/ engine/engine.h engine/tensor/dtype.h engine/tune/store.h"
  "server/tune_file|server/tune_file.h engine/base/ engine/tensor/dtype.h engine/tune/store.h"
  "server/|server/ config/ engine/base/ engine/text/ engine/engine.h engine/cl/device.h engine/cl/prof.h engine/ops/op.h")

# pattern of a library's header|folders that may include it
set(libraries
  "CL/|engine/cl/"
  "uv\\.h|server/"
  "microhttpd\\.h|server/"
  "cjson/|server/"
  "cJSON\\.h|server/"
  "curl/|server/cli/"
  "systemd/|server/"
  "gnutls/|server/"
  "ini\\.h|config/"
  "pcre2\\.h|engine/text/"
  "xxhash\\.h|engine/")

# begins_with(OUT TEXT PREFIXES): whether TEXT begins with one of the space-separated PREFIXES.
function(begins_with out text prefixes)
  separate_arguments(list UNIX_COMMAND "${prefixes}")
  set(${out} FALSE PARENT_SCOPE)
  foreach(prefix ${list})
    string(FIND "${text}" "${prefix}" at)
    if(at EQUAL 0)
      set(${out} TRUE PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# check_include(OUT FILE INCLUDE): why FILE must not include INCLUDE ("x.h" or <x.h> as written); empty when it may.
function(check_include out file include)
  set(${out} "" PARENT_SCOPE)
  string(REGEX REPLACE "^[<\"](.*)[>\"]$" "\\1" header "${include}")
  foreach(row ${libraries})
    string(REGEX MATCH "^([^|]*)\\|(.*)$" row "${row}")
    set(folders "${CMAKE_MATCH_2}")
    if(header MATCHES "^${CMAKE_MATCH_1}")
      begins_with(allowed "${file}" "${folders}")
      if(NOT allowed)
        set(${out} "<${header}> belongs to ${folders}" PARENT_SCOPE)
      endif()
      return()
    endif()
  endforeach()
  if(NOT include MATCHES "^\"")
    return()
  endif()
  foreach(row ${rules})
    string(REGEX MATCH "^([^|]*)\\|(.*)$" row "${row}")
    set(folder "${CMAKE_MATCH_1}")
    set(prefixes "${CMAKE_MATCH_2}")
    begins_with(matches "${file}" "${folder}")
    if(matches)
      begins_with(allowed "${header}" "${prefixes}")
      if(folder STREQUAL "kernels/" AND EXISTS ${ROOT}/kernels/${header})   # device code names files below kernels/
        set(allowed TRUE)
      endif()
      if(NOT allowed)
        set(${out} "${folder} may only include ${prefixes}" PARENT_SCOPE)
      endif()
      return()
    endif()
  endforeach()
endfunction()

# The rules themselves: each of these must be refused, each of those allowed.
foreach(bad "engine/base/mem.c|<uv.h>" "engine/ops/op.c|<CL/cl.h>" "engine/model/plan.c|\"config/config.h\""
    "engine/base/mem.c|\"engine/cl/device.h\"" "config/config.c|<microhttpd.h>" "server/http.c|\"engine/model/plan.h\""
    "engine/text/stop.c|\"engine/tensor/dtype.h\"" "engine/session.c|\"server/job.h\"" "engine/engine.c|<cjson/cJSON.h>")
  string(REGEX MATCH "^([^|]*)\\|(.*)$" bad "${bad}")
  check_include(why "${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
  if(why STREQUAL "")
    message(FATAL_ERROR "the rules do not refuse ${bad}")
  endif()
endforeach()
foreach(good "engine/cl/cl.c|<CL/cl.h>" "server/http.c|\"engine/engine.h\"" "engine/model/plan.c|\"engine/text/tokenizer.h\""
    "engine/base/mem.c|<stdio.h>" "server/cli/mkmodel.c|\"engine/model/gguf.h\"" "kernels/cpu/repack.cl|\"cpu/r16.h\"")
  string(REGEX MATCH "^([^|]*)\\|(.*)$" good "${good}")
  check_include(why "${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
  if(NOT why STREQUAL "")
    message(FATAL_ERROR "the rules refuse ${good}: ${why}")
  endif()
endforeach()

file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/engine/*.[ch] ${ROOT}/config/*.[ch] ${ROOT}/server/*.[ch]
  ${ROOT}/engine/*.def ${ROOT}/config/*.def ${ROOT}/server/*.def ${ROOT}/kernels/*.h ${ROOT}/kernels/*.cl)
list(LENGTH files count)
if(count LESS 20)
  message(FATAL_ERROR "only ${count} files found under ${ROOT}")
endif()
set(faults 0)
foreach(file ${files})
  file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include")
  foreach(line ${lines})
    string(REGEX MATCH "[<\"][^>\"]*[>\"]" include "${line}")
    check_include(why "${file}" "${include}")
    if(NOT why STREQUAL "")
      message(SEND_ERROR "${file}: ${include}: ${why}")
      math(EXPR faults "${faults} + 1")
    endif()
  endforeach()
endforeach()
message(STATUS "${count} files, ${faults} includes against the layering")

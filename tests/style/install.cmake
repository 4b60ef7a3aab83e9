# Installs a build into an empty folder and checks that everything is where a package needs it, and that the installed
# programs start: cmake -DBUILD=<build folder> -DSTAGE=<folder> -P install.cmake
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE ${STAGE})
execute_process(COMMAND ${CMAKE_COMMAND} -E env DESTDIR=${STAGE} ${CMAKE_COMMAND} --install ${BUILD} --prefix /usr
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE installed LIST_DIRECTORIES false RELATIVE ${STAGE} ${STAGE}/*)
foreach(pattern "^usr/bin/oinferd$" "^usr/bin/oinfer$" "^etc/oinfer/oinferd\\.conf$" "^usr/share/doc/oinfer/README\\.md$"
    "^usr/share/doc/oinfer/LICENSE$" "^usr/lib/systemd/system/oinferd\\.service$"
    "^usr/lib/systemd/system/oinferd\\.socket$" "^usr/libexec/oinfer/backoff\\.sh$" "^usr/lib/sysusers\\.d/oinferd\\.conf$"
    "^usr/lib/tmpfiles\\.d/oinferd\\.conf$")
  set(found ${installed})
  list(FILTER found INCLUDE REGEX "${pattern}")
  if(found STREQUAL "")
    message(FATAL_ERROR "nothing installed matches ${pattern}; installed: ${installed}")
  endif()
endforeach()
foreach(program oinferd oinfer)
  execute_process(COMMAND ${STAGE}/usr/bin/${program} --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
  if(NOT version MATCHES "[0-9]+\\.[0-9]+\\.[0-9]+")
    message(FATAL_ERROR "${program} --version printed '${version}'")
  endif()
endforeach()
# Nothing lies outside another prefix than the one that the build was configured for, and the unit names what was installed.
file(REMOVE_RECURSE ${STAGE})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${STAGE}/own OUTPUT_VARIABLE log COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(Installing|Up-to-date): [^\n]*" files "${log}")
list(FILTER files EXCLUDE REGEX ": ${STAGE}/own/")
if(NOT files STREQUAL "")
  message(FATAL_ERROR "installed outside the prefix: ${files}")
endif()
file(STRINGS ${STAGE}/own/lib/systemd/system/oinferd.service start REGEX "^ExecStart=")
if(NOT start STREQUAL "ExecStart=${STAGE}/own/bin/oinferd --config ${STAGE}/own/etc/oinfer/oinferd.conf"
    OR NOT EXISTS ${STAGE}/own/etc/oinfer/oinferd.conf)
  message(FATAL_ERROR "the unit names other paths than those installed: ${start}")
endif()
# A configuration that is there already stays.
file(APPEND ${STAGE}/own/etc/oinfer/oinferd.conf "# edited\n")
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${STAGE}/own OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(STRINGS ${STAGE}/own/etc/oinfer/oinferd.conf edited REGEX "^# edited$")
if(edited STREQUAL "")
  message(FATAL_ERROR "a second installation overwrote the configuration")
endif()

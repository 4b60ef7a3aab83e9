# The scripts of deploy/: their failures, and what shellcheck says.
add_test(NAME deploy_failures COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/deploy/failures.sh)
set(deploy_tests deploy_failures)
find_program(OINFER_SHELLCHECK shellcheck)
if(OINFER_SHELLCHECK)
  file(GLOB scripts ${CMAKE_SOURCE_DIR}/deploy/*.sh ${CMAKE_SOURCE_DIR}/tests/*.sh ${CMAKE_SOURCE_DIR}/tests/*/*.sh
    ${CMAKE_SOURCE_DIR}/.ci/run)
  add_test(NAME shellcheck COMMAND ${OINFER_SHELLCHECK} --external-sources ${scripts})
  set_tests_properties(shellcheck PROPERTIES WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  list(APPEND deploy_tests shellcheck)
endif()
set_tests_properties(${deploy_tests} PROPERTIES LABELS deploy TIMEOUT 120)

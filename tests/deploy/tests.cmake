# What deploy/ holds: scripts and their failures, the daemon under a service manager, units, packages, and the files for
# proxies and monitoring. A tool that is not installed is a skip that names it.
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

foreach(name manager units package fleet)
  add_test(NAME deploy_${name} COMMAND ${OINFER_PYTHON} -m pytest -q -p no:cacheprovider -rs
    ${CMAKE_CURRENT_SOURCE_DIR}/deploy/test_${name}.py)
  set_tests_properties(deploy_${name} PROPERTIES LABELS deploy TIMEOUT 300 RESOURCE_LOCK deploy
    ENVIRONMENT "OINFERD=$<TARGET_FILE:oinferd>;OINFERD_FAKE=$<TARGET_FILE:oinferd_fake>;OINFER=$<TARGET_FILE:oinfer>;FAKE_CL=$<TARGET_FILE:fake_cl>;OINFER_BUILD=${CMAKE_BINARY_DIR};PYTHONDONTWRITEBYTECODE=1")
endforeach()
set_tests_properties(deploy_manager deploy_fleet PROPERTIES RUN_SERIAL TRUE)   # they wait for times to pass

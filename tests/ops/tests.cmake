# The op tests again on other OpenCL implementations, small shapes only: Rusticl on llvmpipe, and Oclgrind, which also
# finds races, reads of uninitialised memory and accesses out of bounds.
set_tests_properties(test_variants PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77)

add_test(NAME test_variants_rusticl COMMAND test_variants --small --device rusticl)
set_tests_properties(test_variants_rusticl PROPERTIES LABELS ops TIMEOUT 600 SKIP_RETURN_CODE 77
  ENVIRONMENT "RUSTICL_ENABLE=llvmpipe")

find_program(OCLGRIND oclgrind)
if(OCLGRIND)
  add_test(NAME test_variants_oclgrind COMMAND ${OCLGRIND} --data-races --check-api --max-errors 20
    $<TARGET_FILE:test_variants> --small --device Oclgrind)
else()
  add_test(NAME test_variants_oclgrind COMMAND ${CMAKE_COMMAND} -E echo "skipped: oclgrind is not installed")
endif()
set_tests_properties(test_variants_oclgrind PROPERTIES LABELS ops TIMEOUT 900 SKIP_RETURN_CODE 77
  SKIP_REGULAR_EXPRESSION "skipped: oclgrind" FAIL_REGULAR_EXPRESSION "Invalid (read|write)|data race|divergence")

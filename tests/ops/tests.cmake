# The op tests again on other OpenCL implementations, small shapes only: Rusticl on llvmpipe, and Oclgrind, which also
# finds races, reads of uninitialised memory and accesses out of bounds.
set_tests_properties(test_variants PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77)

add_test(NAME test_variants_rusticl COMMAND test_variants --small --device rusticl)
set_tests_properties(test_variants_rusticl PROPERTIES LABELS ops TIMEOUT 600 SKIP_RETURN_CODE 77
  ENVIRONMENT "RUSTICL_ENABLE=llvmpipe")

# Devices without CAP_LONG_LOOPS are told from the others here.
add_test(NAME test_extremes_rusticl COMMAND test_extremes)
set_tests_properties(test_extremes_rusticl PROPERTIES LABELS ops TIMEOUT 600
  ENVIRONMENT "RUSTICL_ENABLE=llvmpipe;OCL_ICD_VENDORS=/etc/OpenCL/vendors/rusticl.icd")

find_program(OCLGRIND oclgrind)
set(oclgrind_finds "Invalid (read|write)|data race|divergence|[Uu]ninitialized (value|address|data)")
if(OCLGRIND)
  add_test(NAME test_variants_oclgrind COMMAND ${OCLGRIND} --data-races --uninitialized --check-api --max-errors 20
    $<TARGET_FILE:test_variants> --small --device Oclgrind)
else()
  add_test(NAME test_variants_oclgrind COMMAND ${CMAKE_COMMAND} -E echo "skipped: oclgrind is not installed")
endif()
set_tests_properties(test_variants_oclgrind PROPERTIES LABELS ops TIMEOUT 900 SKIP_RETURN_CODE 77
  SKIP_REGULAR_EXPRESSION "skipped: oclgrind" FAIL_REGULAR_EXPRESSION "${oclgrind_finds}")

# D31: planted faults are found by the same options and words.
find_program(OCLGRIND_KERNEL oclgrind-kernel)
if(OCLGRIND_KERNEL)
  set(planted ${CMAKE_CURRENT_BINARY_DIR}/planted_faults)
  file(WRITE ${planted}/race.cl "kernel void race(global int *x, local int *l) {\n"
    "  uint i = get_local_id(0);\n  l[i] = x[i];\n  x[i] = l[(i + 1) % 4];\n}\n")
  file(WRITE ${planted}/race.sim "race.cl\nrace\n4 1 1\n4 1 1\n<size=16 fill=1 int>\n<size=16>\n")
  file(WRITE ${planted}/uninitialized.cl "kernel void uninitialized(global int *x) {\n"
    "  int v[4];\n  v[0] = 1;\n  if (v[x[0]] > 0)\n    x[0] = 5;\n}\n")
  file(WRITE ${planted}/uninitialized.sim "uninitialized.cl\nuninitialized\n1 1 1\n1 1 1\n<size=4 fill=2 int>\n")
  foreach(fault race uninitialized)
    add_test(NAME oclgrind_catches_${fault} COMMAND ${OCLGRIND_KERNEL} --data-races --uninitialized ${fault}.sim
      WORKING_DIRECTORY ${planted})
    set_tests_properties(oclgrind_catches_${fault} PROPERTIES LABELS ops TIMEOUT 60
      PASS_REGULAR_EXPRESSION "${oclgrind_finds}")
  endforeach()
endif()

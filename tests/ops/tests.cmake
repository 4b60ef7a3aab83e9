# The op tests again on other OpenCL implementations, small shapes only: Rusticl on llvmpipe, and Oclgrind, which also
# finds races, divergent barriers and accesses out of bounds.
set_tests_properties(test_variants PROPERTIES TIMEOUT 1200 SKIP_RETURN_CODE 77)

# Offsets over 4 GiB.
add_test(NAME test_variants_far COMMAND test_variants --far)
set_tests_properties(test_offsets PROPERTIES TIMEOUT 600)
set_tests_properties(test_variants_far PROPERTIES LABELS ops TIMEOUT 600 SKIP_RETURN_CODE 77)

add_test(NAME test_variants_rusticl COMMAND test_variants --medium --device rusticl)
set_tests_properties(test_variants_rusticl PROPERTIES LABELS ops TIMEOUT 600 SKIP_RETURN_CODE 77
  ENVIRONMENT "RUSTICL_ENABLE=llvmpipe")

# Devices without CAP_LONG_LOOPS are told from the others here.
add_test(NAME test_extremes_rusticl COMMAND test_extremes)
set_tests_properties(test_extremes_rusticl PROPERTIES LABELS ops TIMEOUT 600
  ENVIRONMENT "RUSTICL_ENABLE=llvmpipe;OCL_ICD_VENDORS=/etc/OpenCL/vendors/rusticl.icd")

find_program(OCLGRIND oclgrind)
set(oclgrind_finds "Invalid (read|write)|data race|divergence")   # not --uninitialized: it takes params by value for that
if(OCLGRIND)
  add_test(NAME test_variants_oclgrind COMMAND ${OCLGRIND} --data-races --check-api --max-errors 20
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
  file(WRITE ${planted}/bounds.cl "kernel void bounds(global int *x, local int *l) {\n  x[get_local_id(0) + 1] = 0;\n}\n")
  foreach(fault race bounds)
    file(WRITE ${planted}/${fault}.sim "${fault}.cl\n${fault}\n4 1 1\n4 1 1\n<size=16 fill=1 int>\n<size=16>\n")
    add_test(NAME oclgrind_catches_${fault} COMMAND ${OCLGRIND_KERNEL} --data-races ${fault}.sim
      WORKING_DIRECTORY ${planted})
    set_tests_properties(oclgrind_catches_${fault} PROPERTIES LABELS ops TIMEOUT 60
      PASS_REGULAR_EXPRESSION "${oclgrind_finds}")
  endforeach()
endif()

# D20: drivers of CPUs keep the private memory of a whole group, across barriers, on the stack of a thread.
if(NOT OINFER_SANITIZE)
  add_test(NAME test_variants_small_stack COMMAND sh -c "ulimit -s 256
    for variant in attention/split attention/tile linear/rows_t4 linear/tile norm/plain; do
      \"$0\" --medium --device pthread --variant $variant || exit $?
    done" $<TARGET_FILE:test_variants>)
  set_tests_properties(test_variants_small_stack PROPERTIES LABELS ops TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()

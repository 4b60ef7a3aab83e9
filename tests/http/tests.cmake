# HTTP tests: pytest over the daemon on the fake engine (oinferd_fake; also under the sanitizers) and on the real one.
set(http_environment OINFERD=$<TARGET_FILE:oinferd> OINFERD_FAKE=$<TARGET_FILE:oinferd_fake> OINFER=$<TARGET_FILE:oinfer>
  "OINFER_SANITIZE=${OINFER_SANITIZE}" PYTHONDONTWRITEBYTECODE=1
  FAKE_CL=$<TARGET_FILE:fake_cl> FAKE_FILE=$<TARGET_FILE:fake_file>)
foreach(name completions errors clients limits api models ops faults load soak tune tls)
  add_test(NAME http_${name} COMMAND ${OINFER_PYTHON} -m pytest -q -p no:cacheprovider -rs
    ${CMAKE_CURRENT_SOURCE_DIR}/http/test_${name}.py)
  set_tests_properties(http_${name} PROPERTIES LABELS http TIMEOUT 1200 ENVIRONMENT "${http_environment}")
endforeach()
set_tests_properties(http_models http_faults PROPERTIES PROCESSORS 2)   # the device takes every core
set_tests_properties(http_load PROPERTIES RUN_SERIAL TRUE)

# The command line, run as a user runs it.
if(TARGET oinfer)
  add_test(NAME test_cli COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli/test_cli.py $<TARGET_FILE:oinfer>)
  set_tests_properties(test_cli PROPERTIES LABELS unit TIMEOUT 300)
  add_test(NAME test_tune_cli COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli/test_tune_cli.py
    $<TARGET_FILE:oinfer>)
  set_tests_properties(test_tune_cli PROPERTIES LABELS unit TIMEOUT 600)
endif()

# Failing OpenCL calls: fake_cl is preloaded before the loader, and every call of a program is made to fail in turn.
add_library(fake_cl MODULE ${CMAKE_CURRENT_SOURCE_DIR}/fault/fake_cl.c)
target_compile_definitions(fake_cl PRIVATE CL_TARGET_OPENCL_VERSION=300)
target_compile_options(fake_cl PRIVATE -Wall -Wextra)
target_link_libraries(fake_cl PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
add_executable(cl_exercise ${CMAKE_CURRENT_SOURCE_DIR}/fault/cl_exercise.c)
target_link_libraries(cl_exercise PRIVATE oinfer_cl)
foreach(mode cpu gpu)
  set(argument "")
  if(mode STREQUAL gpu)
    set(argument gpu)
  endif()
  add_test(NAME cl_faults_${mode} COMMAND ${OINFER_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/fault/cl_faults.py
    $<TARGET_FILE:cl_exercise> $<TARGET_FILE:fake_cl> ${argument})
  set_tests_properties(cl_faults_${mode} PROPERTIES LABELS fault TIMEOUT 600)
  if(OINFER_SANITIZE)   # a process for each fault, and those are slow
    set_tests_properties(cl_faults_${mode} PROPERTIES ENVIRONMENT OINFER_FAULTS_FEW=1)
  endif()
endforeach()

# The engine with calls and allocations failing: fake_cl is linked in.
add_executable(engine_faults ${CMAKE_CURRENT_SOURCE_DIR}/fault/engine_faults.c ${CMAKE_CURRENT_SOURCE_DIR}/fault/fake_cl.c
  ${CMAKE_CURRENT_SOURCE_DIR}/golden/tiny.c)
target_link_libraries(engine_faults PRIVATE oinfer_engine PkgConfig::CMOCKA ${CMAKE_DL_LIBS})
add_test(NAME engine_faults COMMAND engine_faults)
set_tests_properties(engine_faults PROPERTIES LABELS fault TIMEOUT 900)

# Failing file calls, for the daemon (tests/http/test_faults.py).
add_library(fake_file MODULE ${CMAKE_CURRENT_SOURCE_DIR}/fault/fake_file.c)
target_compile_options(fake_file PRIVATE -Wall -Wextra)
target_link_libraries(fake_file PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)

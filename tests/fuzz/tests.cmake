# Fuzz targets: each fuzz_NAME.c holds LLVMFuzzerTestOneInput. Always built with replay.c, which ctest runs over
# corpus/NAME (past findings included) and over mutations of it; with OINFER_FUZZ=ON and clang also as a libFuzzer
# program fuzz_NAME, to be run as: fuzz_NAME -max_total_time=600 tests/fuzz/corpus/NAME
file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "^fuzz_" "" corpus ${name})
  add_executable(replay_${corpus} ${source} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/replay.c)
  target_link_libraries(replay_${corpus} PRIVATE oinfer_server)
  add_test(NAME ${name} COMMAND replay_${corpus} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${corpus})
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
  if(OINFER_FUZZ)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE oinfer_server)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endif()
endforeach()

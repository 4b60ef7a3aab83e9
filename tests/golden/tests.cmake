# These tests need files that are not in the tree; without them they say so and return 77.
foreach(name test_tokens_smollm2 test_vocab_files test_continuations test_perplexity)
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
set_tests_properties(test_logits PROPERTIES TIMEOUT 1200) # every variant of every device is built
set_tests_properties(test_fused test_streaming test_continuations test_perplexity PROPERTIES TIMEOUT 900)
target_sources(test_logits PRIVATE golden/reference.c golden/tiny.c)
foreach(name test_engine test_plan test_streaming test_metadata test_rehearsal test_fused_check test_embedded_tuning)   # unit tests that need a tiny model
  target_sources(${name} PRIVATE golden/tiny.c)
endforeach()

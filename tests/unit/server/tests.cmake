# The server without the engine: every source of server/ with the fake engine under it. Its unit tests are
# fake/test_*.c; oinferd_fake is the whole daemon, which the HTTP tests run under the sanitizers too.
file(GLOB server_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/server/*.c ${CMAKE_SOURCE_DIR}/server/ops/*.c)
list(FILTER server_sources EXCLUDE REGEX "/server/main\\.c$")
set(fake_folder ${CMAKE_CURRENT_SOURCE_DIR}/unit/server/fake)
add_library(oinfer_fake_server STATIC ${server_sources} ${fake_folder}/fake_engine.c
  ${fake_folder}/fake_ops.c ${fake_folder}/fake_tune.c ${CMAKE_SOURCE_DIR}/engine/tune/shape.c
  ${CMAKE_SOURCE_DIR}/engine/tune/store.c)
target_include_directories(oinfer_fake_server PUBLIC ${fake_folder})
target_link_libraries(oinfer_fake_server PUBLIC oinfer_flags oinfer_text oinfer_tensor oinfer_config oinfer_openapi
  PkgConfig::UV PkgConfig::MHD PkgConfig::GNUTLS PkgConfig::CJSON)
if(SYSTEMD_FOUND)
  target_link_libraries(oinfer_fake_server PUBLIC PkgConfig::SYSTEMD)
  target_compile_definitions(oinfer_fake_server PUBLIC OINFER_HAVE_SYSTEMD=1)
endif()
oinfer_tests(unit/server/fake "unit;threads" oinfer_fake_server)

add_executable(oinferd_fake ${CMAKE_SOURCE_DIR}/server/main.c)
target_link_libraries(oinferd_fake PRIVATE oinfer_fake_server)

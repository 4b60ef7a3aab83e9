# The part of the installation that depends on the prefix of `cmake --install`: the configuration file, unless there is one
# already, and systemd's unit, which names its paths. Takes unit_in, unit, config, bindir, libexecdir and
# sysconfdir from the caller.
set(prefix "${CMAKE_INSTALL_PREFIX}")
cmake_path(NORMAL_PATH prefix)
cmake_path(ABSOLUTE_PATH bindir BASE_DIRECTORY "${prefix}" OUTPUT_VARIABLE CMAKE_INSTALL_FULL_BINDIR)
cmake_path(ABSOLUTE_PATH libexecdir BASE_DIRECTORY "${prefix}" OUTPUT_VARIABLE CMAKE_INSTALL_FULL_LIBEXECDIR)
if(prefix MATCHES "^/usr/?$")
  set(prefix "/")
endif()
cmake_path(ABSOLUTE_PATH sysconfdir BASE_DIRECTORY "${prefix}" OUTPUT_VARIABLE CMAKE_INSTALL_FULL_SYSCONFDIR)
configure_file("${unit_in}" "${unit}" @ONLY)
set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_FULL_SYSCONFDIR}/oinfer")
if(EXISTS "${folder}/oinferd.conf")
  message("-- Keeping: ${folder}/oinferd.conf")
else()
  file(INSTALL "${config}" DESTINATION "${CMAKE_INSTALL_FULL_SYSCONFDIR}/oinfer")
endif()

# What is installed, all of it relocatable: the folder can be moved, and packed into a wheel.
include(CMakePackageConfigHelpers)
set(packages ${CMAKE_INSTALL_LIBDIR}/cmake/speccompile)

target_include_directories(speccompile INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(FILES ${native}/include/speccompile.h ${native}/include/speccompile.hpp ${native}/include/speccompile_scheduler.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS speccompile-native RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET triton_speccompile)  # beside the library, which it loads from its own folder
  install(TARGETS triton_speccompile LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

set(libraries "-L\${libdir} -lspeccompile")
if(SPECCOMPILE_NO_LINKS)
  install(TARGETS speccompile EXPORT speccompile LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} NAMELINK_SKIP)
  if(APPLE)
    set(libraries "\${libdir}/libspeccompile.${abi}.dylib")
  else()
    # What -lspeccompile finds: to a linker, text is a script that names what is meant.
    set(link ${CMAKE_CURRENT_BINARY_DIR}/link/libspeccompile.so)
    file(WRITE ${link} "/* GNU ld script: the library's link, where there can be none */\nINPUT(libspeccompile.so.${abi})\n")
    install(FILES ${link} DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
else()
  install(TARGETS speccompile EXPORT speccompile LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

install(EXPORT speccompile NAMESPACE speccompile:: FILE speccompile-targets.cmake DESTINATION ${packages})
configure_package_config_file(
  ${native}/cmake/speccompile-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/speccompile-config.cmake
  INSTALL_DESTINATION ${packages} NO_SET_AND_CHECK_MACRO)
# While the ABI is the same, a later library serves what was written for an earlier one.
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/speccompile-config-version.cmake COMPATIBILITY AnyNewerVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/speccompile-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/speccompile-config-version.cmake
  DESTINATION ${packages})

# The .pc file knows its own folder; the others are told from there, whatever the system's lib is called.
file(RELATIVE_PATH to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
configure_file(${native}/cmake/speccompile.pc.in ${CMAKE_CURRENT_BINARY_DIR}/speccompile.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/speccompile.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

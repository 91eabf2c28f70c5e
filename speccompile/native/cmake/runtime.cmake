# The runtime: the library with the C ABI, the command, and what servers load. ONNX Runtime is found when a bundle is
# opened; nothing here links with it.
find_package(Threads REQUIRED)
include(GNUInstallDirs)
set(native ${PROJECT_SOURCE_DIR})

# Compiled once for the library, the command and the tests.
file(GLOB sources CONFIGURE_DEPENDS ${native}/*.cpp ${native}/audio/*.cpp ${native}/bundle/*.cpp ${native}/constraints/*.cpp ${native}/images/*.cpp ${native}/index/*.cpp ${native}/runtime/*.cpp ${native}/serving/scheduler/*.cpp
  ${native}/text/*.cpp ${native}/text/jinja/*.cpp)
add_library(speccompile_runtime OBJECT ${sources})

# Pictures in PNG and JPEG files. Nothing links with the libraries, which are loaded with the first such file: their headers alone
# are needed here, and what is compiled without them reads PPM.
include(CheckIncludeFileCXX)
check_include_file_cxx(png.h SPECCOMPILE_HAS_PNG)
check_cxx_source_compiles("#include <cstdio>\nextern \"C\" {\n#include <jpeglib.h>\n}\nint main() { return JPEG_LIB_VERSION < 62; }" SPECCOMPILE_HAS_JPEG)
foreach(library PNG JPEG)
  if(SPECCOMPILE_HAS_${library})
    target_compile_definitions(speccompile_runtime PRIVATE SPECCOMPILE_HAS_${library})
  endif()
endforeach()

set(runtime_objects
  $<TARGET_OBJECTS:speccompile_runtime> $<TARGET_OBJECTS:speccompile_operators> $<TARGET_OBJECTS:speccompile_paths>)

file(GLOB sources CONFIGURE_DEPENDS ${native}/abi/*.cpp)
add_library(speccompile SHARED ${sources} ${runtime_objects})
add_library(speccompile::speccompile ALIAS speccompile)
target_compile_definitions(speccompile PRIVATE SPC_BUILDING)
target_compile_features(speccompile INTERFACE cxx_std_17)  # of speccompile.hpp; C programs have no such feature
target_include_directories(speccompile PUBLIC $<BUILD_INTERFACE:${native}/include>)
set_target_properties(speccompile PROPERTIES SOVERSION ${abi})
if(NOT SPECCOMPILE_NO_LINKS)
  set_target_properties(speccompile PROPERTIES VERSION ${abi}.0.0)
endif()

include(cmake/page.cmake)
file(GLOB sources CONFIGURE_DEPENDS ${native}/serving/http/*.cpp)
add_library(speccompile_http OBJECT ${sources} ${page_source})

file(GLOB sources CONFIGURE_DEPENDS ${native}/cli/*.cpp)
add_executable(speccompile-native ${sources} $<TARGET_OBJECTS:speccompile_http> ${runtime_objects})

foreach(target speccompile speccompile-native)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
endforeach()

# Nothing is visible but the ABI, whose symbols have a version.
if(CMAKE_SYSTEM_NAME STREQUAL Linux)
  # Nor is the library unloaded: ONNX Runtime's threads and its environment live as long as the process.
  target_link_options(speccompile PRIVATE -Wl,-z,nodelete)
  show_only(speccompile ${native}/abi/exports.map)
  if(NOT SPECCOMPILE_SANITIZE)  # sanitizers watch the libraries of the program, and are part of it
    target_link_options(speccompile PRIVATE -Wl,--no-undefined -static-libstdc++ -static-libgcc)
    target_link_options(speccompile-native PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  # ONNX Runtime is looked for beside the library as well: an unpacked archive that has both runs where it lies.
  set_target_properties(speccompile-native PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" BUILD_WITH_INSTALL_RPATH ON)
  set_target_properties(speccompile PROPERTIES INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
elseif(APPLE)
  target_link_options(speccompile PRIVATE -Wl,-exported_symbol,_spc_*)
endif()

if(CMAKE_SYSTEM_NAME STREQUAL Linux)  # as is Triton
  add_subdirectory(triton)
endif()

# Everything that is installed, by one name.
add_custom_target(speccompile_installed DEPENDS speccompile speccompile-native)
if(TARGET triton_speccompile)
  add_dependencies(speccompile_installed triton_speccompile)
endif()

# Finds the system's Gloo and defines Gloo::gloo. Debian's package has a CMake file of its own, but
# for a target that every program would then load; this one is loaded by those that call into it.
#
# A program that links libtorch as well must find this Gloo first: see FindLibtorch.cmake.
include(FindPackageHandleStandardArgs)
find_path(Gloo_INCLUDE_DIR gloo/transport/tcp/device.h)
find_library(Gloo_LIBRARY gloo)
mark_as_advanced(Gloo_INCLUDE_DIR Gloo_LIBRARY)
find_package_handle_standard_args(Gloo REQUIRED_VARS Gloo_LIBRARY Gloo_INCLUDE_DIR)
if(Gloo_FOUND AND NOT TARGET Gloo::gloo)
  add_library(Gloo::gloo INTERFACE IMPORTED)
  set_target_properties(Gloo::gloo PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Gloo_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "-Wl,--push-state,--as-needed,${Gloo_LIBRARY},--pop-state")
endif()

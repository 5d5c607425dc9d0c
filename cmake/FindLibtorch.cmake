# Finds libtorch in any of the three layouts people have it in and defines Libtorch::Libtorch.
#
#   a wheel          P/torch/include, P/torch/lib, P/nvidia/*/lib   (`./dev setup`, or a venv's
#                    site-packages)
#   an archive       P/include, P/lib                               (libtorch-*.zip, unpacked)
#   Debian's package P/include, P/lib/x86_64-linux-gnu, P = /usr
#
# LIBTORCH_ROOT (cache variable or environment) says where it is: the prefix P above or, for a
# wheel, P/torch; then nothing else is looked at. Without it: the prefix that `./dev setup` made for
# the pin in packages/libtorch.txt, then other prefixes in the same cache, then /usr.
#
# We do not use the wheel's own TorchConfig.cmake: it insists on a CUDA toolkit that a CPU machine
# does not have.
#
# Two traps this file exists to avoid:
#
# 1. The wheel's libtorch_cpu.so exports a private, newer copy of Gloo under Gloo's own names, and
#    whoever comes first on the link line wins. So the system's libgloo is part of this target, as a
#    link option: those stand before every object and library, whatever the order of the targets.
#    The tests build.gloo_* and the worker's start-up check (muster/base/symbol_origin.h) see to it
#    that this stays so.
# 2. The wheel's include folder carries other libraries' headers along (fmt, protobuf), newer than
#    the libraries we link. Where that is so, programs get a folder with links to torch's own
#    headers and nothing else.
include(FindPackageHandleStandardArgs)

set(LIBTORCH_ROOT "" CACHE PATH "prefix of libtorch: a wheel's site-packages, an unpacked archive, or /usr")

# Where to look, in order.
set(_libtorch_roots ${LIBTORCH_ROOT})
if(NOT _libtorch_roots)
  set(_libtorch_roots $ENV{LIBTORCH_ROOT})
endif()
set(_libtorch_hint "run ./dev setup, or point LIBTORCH_ROOT at a wheel, an unpacked archive or /usr")
if(_libtorch_roots)
  set(_libtorch_hint "LIBTORCH_ROOT is ${_libtorch_roots}, and there is no whole libtorch in it")
else()
  set(_muster_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT _muster_cache)
    set(_muster_cache "$ENV{HOME}/.cache")
  endif()
  set(_pins "${CMAKE_CURRENT_LIST_DIR}/../packages/libtorch.txt")
  if(EXISTS "${_pins}")
    # The name that scripts/setup.sh gives the prefix: version, then the hash of the pin file.
    file(SHA256 "${_pins}" _pin_hash)
    string(SUBSTRING "${_pin_hash}" 0 12 _pin_hash)
    file(GLOB _pinned LIST_DIRECTORIES true "${_muster_cache}/muster/libtorch-*-${_pin_hash}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_pins}")
  endif()
  file(GLOB _others LIST_DIRECTORIES true "${_muster_cache}/muster/libtorch-*")
  list(SORT _others COMPARE NATURAL ORDER DESCENDING)
  set(_libtorch_roots ${_pinned} ${Libtorch_BUILT_WITH} ${_others} /usr)
endif()

# A root counts only if it has all three parts: never one's headers with another's library.
foreach(_root IN LISTS _libtorch_roots)
  unset(_include)
  unset(_cpu)
  unset(_c10)
  find_path(_include torch/csrc/api/include/torch/torch.h
    PATHS ${_root} PATH_SUFFIXES include torch/include NO_DEFAULT_PATH NO_CACHE)
  set(_suffixes lib torch/lib lib/${CMAKE_LIBRARY_ARCHITECTURE})
  find_library(_cpu torch_cpu PATHS ${_root} PATH_SUFFIXES ${_suffixes} NO_DEFAULT_PATH NO_CACHE)
  find_library(_c10 c10 PATHS ${_root} PATH_SUFFIXES ${_suffixes} NO_DEFAULT_PATH NO_CACHE)
  if(_include AND _cpu AND _c10)
    set(Libtorch_PREFIX ${_root})
    set(Libtorch_INCLUDE_DIR ${_include})
    set(Libtorch_CPU_LIBRARY ${_cpu})
    set(Libtorch_C10_LIBRARY ${_c10})
    break()
  endif()
endforeach()
find_library(Libtorch_GLOO_LIBRARY gloo)
mark_as_advanced(Libtorch_GLOO_LIBRARY)

# torch/headeronly/version.h since 2.9, torch/version.h in the C++ API's folder before.
foreach(_header torch/csrc/api/include/torch/version.h torch/headeronly/version.h)
  if(Libtorch_INCLUDE_DIR AND EXISTS "${Libtorch_INCLUDE_DIR}/${_header}")
    foreach(_part MAJOR MINOR PATCH)
      file(STRINGS "${Libtorch_INCLUDE_DIR}/${_header}" _line
        REGEX "#define TORCH_VERSION_${_part} +[0-9]+")
      if(_line)
        string(REGEX REPLACE ".*_${_part} +([0-9]+).*" "\\1" _${_part} "${_line}")
        set(Libtorch_VERSION "${_MAJOR}.${_MINOR}.${_PATCH}")
      endif()
    endforeach()
  endif()
endforeach()

find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR Libtorch_GLOO_LIBRARY
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "${_libtorch_hint}")

if(Libtorch_FOUND)
  # Wheels up to 2.6 were built with the string of 2014; nothing compiled today links with that.
  get_filename_component(_config "${Libtorch_INCLUDE_DIR}/../share/cmake/Torch/TorchConfig.cmake" ABSOLUTE)
  if(EXISTS "${_config}")
    file(STRINGS "${_config}" _old_abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(_old_abi)
      message(FATAL_ERROR "libtorch ${Libtorch_VERSION} in ${Libtorch_PREFIX} was built with the old "
        "C++ ABI (_GLIBCXX_USE_CXX11_ABI=0). Take a wheel from 2.7 on, or the cxx11-abi archive.")
    endif()
  endif()
endif()

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  set(_headers "${Libtorch_INCLUDE_DIR}")
  if(EXISTS "${Libtorch_INCLUDE_DIR}/fmt" OR EXISTS "${Libtorch_INCLUDE_DIR}/google")
    if(NOT Libtorch_INCLUDE_DIR STREQUAL "/usr/include")  # there they belong to the system
      set(_headers "${CMAKE_BINARY_DIR}/CMakeFiles/libtorch-include")
      file(MAKE_DIRECTORY "${_headers}")
      foreach(_folder torch ATen c10 caffe2)
        file(CREATE_LINK "${Libtorch_INCLUDE_DIR}/${_folder}" "${_headers}/${_folder}" SYMBOLIC)
      endforeach()
    endif()
  endif()

  # A wheel's libtorch_cpu.so may name CUDA's runtime, which lives in sibling packages.
  get_filename_component(_libdir "${Libtorch_CPU_LIBRARY}" DIRECTORY)
  file(GLOB _nvidia "${Libtorch_PREFIX}/nvidia/*/lib" "${Libtorch_PREFIX}/../nvidia/*/lib")
  set(Libtorch_RUNTIME_DIRS ${_libdir} ${_nvidia})

  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    ${_headers} ${_headers}/torch/csrc/api/include)
  # no-as-needed: where the compiler drops libraries that nothing before them asked for (Ubuntu),
  # Gloo must stay.
  target_link_options(Libtorch::Libtorch INTERFACE
    "LINKER:--push-state,--no-as-needed,${Libtorch_GLOO_LIBRARY},--pop-state"
    "LINKER:--allow-shlib-undefined")
  target_link_libraries(Libtorch::Libtorch INTERFACE ${Libtorch_CPU_LIBRARY} ${Libtorch_C10_LIBRARY})
  foreach(_dir IN LISTS Libtorch_RUNTIME_DIRS)
    target_link_options(Libtorch::Libtorch INTERFACE "LINKER:-rpath,${_dir}")
  endforeach()
endif()

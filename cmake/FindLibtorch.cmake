# Finds libtorch in any of the three layouts people have it in and defines Libtorch::Libtorch.
#
#   a wheel          P/torch/include, P/torch/lib, P/nvidia/*/lib   (`./dev setup`, or a venv's
#                    site-packages)
#   an archive       P/include, P/lib                               (libtorch-*.zip, unpacked)
#   Debian's package /usr/include/torch, libtorch_cpu.so on the library path
#
# LIBTORCH_ROOT (cache variable or environment) says where to look first: the prefix P above or,
# for a wheel, P/torch. Without it: the prefix that `./dev setup` made, then the system.
#
# We do not use the wheel's own TorchConfig.cmake: it insists on a CUDA toolkit that a CPU machine
# does not have.
#
# The trap this file exists to avoid: the wheel's libtorch_cpu.so exports a private, newer copy of
# Gloo under Gloo's own names. Whoever comes first on the link line wins, so the system's libgloo is
# made part of this target, ahead of torch. `base_gloo_origin_test` and the worker's start-up check
# (muster/base/symbol_origin.h) see to it that this stays so.
include(FindPackageHandleStandardArgs)

set(LIBTORCH_ROOT "" CACHE PATH "prefix of libtorch: a wheel's site-packages, an unpacked archive, or /usr")

set(_muster_cache "$ENV{XDG_CACHE_HOME}")
if(NOT _muster_cache)
  set(_muster_cache "$ENV{HOME}/.cache")
endif()
file(GLOB _muster_prefixes LIST_DIRECTORIES true "${_muster_cache}/muster/libtorch-*")
list(SORT _muster_prefixes ORDER DESCENDING)
set(_libtorch_roots ${LIBTORCH_ROOT} $ENV{LIBTORCH_ROOT} ${_muster_prefixes})

unset(Libtorch_INCLUDE_DIR CACHE)
unset(Libtorch_CPU_LIBRARY CACHE)
unset(Libtorch_C10_LIBRARY CACHE)
foreach(_root IN LISTS _libtorch_roots)
  find_path(Libtorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h
    PATHS ${_root} PATH_SUFFIXES include torch/include NO_DEFAULT_PATH)
  find_library(Libtorch_CPU_LIBRARY torch_cpu
    PATHS ${_root} PATH_SUFFIXES lib torch/lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu NO_DEFAULT_PATH)
  find_library(Libtorch_C10_LIBRARY c10
    PATHS ${_root} PATH_SUFFIXES lib torch/lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu NO_DEFAULT_PATH)
endforeach()
find_path(Libtorch_INCLUDE_DIR torch/csrc/api/include/torch/torch.h)
find_library(Libtorch_CPU_LIBRARY torch_cpu)
find_library(Libtorch_C10_LIBRARY c10)
find_library(Libtorch_GLOO_LIBRARY gloo)

if(Libtorch_INCLUDE_DIR AND EXISTS "${Libtorch_INCLUDE_DIR}/torch/headeronly/version.h")
  set(_version_header "${Libtorch_INCLUDE_DIR}/torch/headeronly/version.h")
elseif(Libtorch_INCLUDE_DIR)
  set(_version_header "${Libtorch_INCLUDE_DIR}/torch/csrc/api/include/torch/version.h")
endif()
if(_version_header AND EXISTS "${_version_header}")
  file(STRINGS "${_version_header}" _lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*" "\\1" _major "${_lines}")
  string(REGEX REPLACE ".*MINOR ([0-9]+).*" "\\1" _minor "${_lines}")
  string(REGEX REPLACE ".*PATCH ([0-9]+).*" "\\1" _patch "${_lines}")
  set(Libtorch_VERSION "${_major}.${_minor}.${_patch}")
endif()

find_package_handle_standard_args(Libtorch
  REQUIRED_VARS Libtorch_CPU_LIBRARY Libtorch_C10_LIBRARY Libtorch_INCLUDE_DIR Libtorch_GLOO_LIBRARY
  VERSION_VAR Libtorch_VERSION
  REASON_FAILURE_MESSAGE "run ./dev setup, or point LIBTORCH_ROOT at a wheel, an unpacked archive or /usr")

if(Libtorch_FOUND AND NOT TARGET Libtorch::Libtorch)
  get_filename_component(_libdir "${Libtorch_CPU_LIBRARY}" DIRECTORY)
  # A wheel's libtorch_cpu.so may name CUDA's runtime, which lives in sibling packages.
  get_filename_component(_site "${_libdir}/../.." ABSOLUTE)
  file(GLOB _nvidia "${_site}/nvidia/*/lib")
  set(Libtorch_RUNTIME_DIRS ${_libdir} ${_nvidia})

  add_library(Libtorch::Libtorch INTERFACE IMPORTED)
  target_include_directories(Libtorch::Libtorch SYSTEM INTERFACE
    ${Libtorch_INCLUDE_DIR} ${Libtorch_INCLUDE_DIR}/torch/csrc/api/include)
  # Gloo first: see the head of this file.
  target_link_libraries(Libtorch::Libtorch INTERFACE
    ${Libtorch_GLOO_LIBRARY} ${Libtorch_CPU_LIBRARY} ${Libtorch_C10_LIBRARY})
  target_link_options(Libtorch::Libtorch INTERFACE "LINKER:--allow-shlib-undefined")
  foreach(_dir IN LISTS Libtorch_RUNTIME_DIRS)
    target_link_options(Libtorch::Libtorch INTERFACE "LINKER:-rpath,${_dir}")
  endforeach()
endif()

# Finds libarrow and libparquet as a wheel of pyarrow has them, and defines Arrow::parquet, which is both.
#
# ARROW_ROOT (cache variable or environment) says where it is: a directory with pyarrow/ in it, such as a venv's
# site-packages; then nothing else is looked at. Without it: what scripts/fetch_arrow.sh brought for packages/pyarrow.txt.
include(FindPackageHandleStandardArgs)

set(ARROW_ROOT "" CACHE PATH "directory that has pyarrow/ in it")

set(_arrow_root ${ARROW_ROOT})
if(NOT _arrow_root)
  set(_arrow_root $ENV{ARROW_ROOT})
endif()
if(NOT _arrow_root)
  set(_muster_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT _muster_cache)
    set(_muster_cache "$ENV{HOME}/.cache")
  endif()
  set(_pins "${CMAKE_CURRENT_LIST_DIR}/../packages/pyarrow.txt")
  file(STRINGS "${_pins}" _pin REGEX "^pyarrow==")
  string(REGEX REPLACE "^pyarrow==([0-9.]+).*" "\\1" _pin "${_pin}")
  set(_arrow_root "${_muster_cache}/muster/pyarrow-${_pin}")
endif()

# Found anew each time: the cache of an older version may be gone. The wheel has no names without a number.
file(GLOB Arrow_LIBRARY ${_arrow_root}/pyarrow/libarrow.so.[0-9][0-9][0-9][0-9])
file(GLOB Arrow_PARQUET_LIBRARY ${_arrow_root}/pyarrow/libparquet.so.[0-9][0-9][0-9][0-9])
set(Arrow_INCLUDE_DIR ${_arrow_root}/pyarrow/include)
if(EXISTS ${Arrow_INCLUDE_DIR}/arrow/util/config.h)
  file(STRINGS ${Arrow_INCLUDE_DIR}/arrow/util/config.h Arrow_VERSION REGEX "#define ARROW_VERSION_STRING ")
  string(REGEX REPLACE ".*\"([0-9.]+).*\".*" "\\1" Arrow_VERSION "${Arrow_VERSION}")
endif()

find_package_handle_standard_args(Arrow
  REQUIRED_VARS Arrow_LIBRARY Arrow_PARQUET_LIBRARY Arrow_INCLUDE_DIR
  VERSION_VAR Arrow_VERSION
  REASON_FAILURE_MESSAGE "run scripts/fetch_arrow.sh, or point ARROW_ROOT at a directory with pyarrow/ in it")

if(Arrow_FOUND AND NOT TARGET Arrow::parquet)
  add_library(Arrow::parquet INTERFACE IMPORTED)
  target_include_directories(Arrow::parquet SYSTEM INTERFACE ${Arrow_INCLUDE_DIR})
  target_link_libraries(Arrow::parquet INTERFACE ${Arrow_PARQUET_LIBRARY} ${Arrow_LIBRARY})
  target_link_options(Arrow::parquet INTERFACE "LINKER:-rpath,${_arrow_root}/pyarrow")
endif()

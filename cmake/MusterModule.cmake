# muster_module(NAME [TORCH] [FOLDERS folders...] DEPS other modules... LIBS outside libraries...)
#
# One folder under muster/ is one library, muster_NAME. Files are picked up by their names, so adding
# one needs no edit here:
#   *_test.cc             one GoogleTest program for the module, muster_NAME_test
#   *_benchmark.cc        one Google Benchmark program, muster_NAME_benchmark
#   *_torch_test.cc and   the same, in muster_NAME_torch_test and _torch_benchmark: for a module
#   *_torch_benchmark.cc  without libtorch that compares itself with libtorch
#   *_fuzz.cc             one libFuzzer program each (only with MUSTER_FUZZ=ON, clang)
#   the other *.cc        the library
# FOLDERS: also the files of these folders inside it.
# TORCH marks the modules that may see libtorch; the check of include directions
# (scripts/check_layers.py) holds the others to it.
#
# The target unit_tests builds the test programs of all modules.

# A target for nothing but a precompiled header.
function(muster_pch_target target)
  set(source ${PROJECT_BINARY_DIR}/CMakeFiles/${target}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Nothing: the target exists for its precompiled header.\n")
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${source})
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Otherwise the time of compilation is in the file, and ccache never hits behind it.
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endfunction()

# What nearly all files with libtorch need of it, precompiled; and the same for tests. Not torch/torch.h: each file
# generates the code of all inline functions that the precompiled header may call, 8 s for that one and 4 s for these.
function(muster_add_torch_pch target)
  muster_pch_target(${target})
  # muster_base: so that macros set by its libraries are the same here as in those who reuse this.
  target_link_libraries(${target} PRIVATE muster_base Libtorch::Libtorch muster_flags)
  target_compile_options(${target} PRIVATE ${ARGN})
  target_precompile_headers(${target} PRIVATE <torch/nn/module.h> <torch/types.h> <torch/utils.h>)
endfunction()

# A precompiled header serves only files compiled with the same -fPIC and -O; CMake would give programs -fPIE
# instead.
function(muster_use_pch target pch)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()

# muster_use_torch(TARGET): links libtorch and compiles with the precompiled header.
function(muster_use_torch target)
  muster_use_pch(${target} muster_torch_pch)
  target_link_libraries(${target} PUBLIC Libtorch::Libtorch)
endfunction()

# Tests themselves need not be fast: with -O1 they compile in two thirds of the time of -O3. -pthread: some have it
# from gRPC, and whoever shares a precompiled header must have the same.
# With -O1 GCC 12 takes an empty std::optional for an uninitialized one.
set(muster_test_options $<$<CONFIG:Release>:-O1> -pthread $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# What nearly all tests include, precompiled.
function(muster_add_test_pch)
  muster_pch_target(muster_test_pch)
  target_link_libraries(muster_test_pch PRIVATE muster_base muster_flags GTest::gmock)
  target_compile_options(muster_test_pch PRIVATE ${muster_test_options})
  target_precompile_headers(muster_test_pch PRIVATE
    <chrono> <filesystem> <functional> <map> <memory> <optional> <string> <thread> <vector>
    <fmt/format.h> <gmock/gmock.h> <gtest/gtest.h>)
  if(MUSTER_TORCH)
    muster_add_torch_pch(muster_torch_test_pch ${muster_test_options})
  endif()
endfunction()

# A test program of a module, whose cases ctest runs one by one.
function(muster_unit_test program module)
  cmake_parse_arguments(ARG "TORCH" "" "" ${ARGN})
  add_executable(${program} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${program} PRIVATE muster_${module} muster_flags GTest::gmock GTest::gtest_main)
  target_compile_options(${program} PRIVATE ${muster_test_options})
  if(ARG_TORCH)
    muster_use_pch(${program} muster_torch_test_pch)
    target_link_libraries(${program} PRIVATE Libtorch::Libtorch)
  else()
    muster_use_pch(${program} muster_test_pch)
  endif()
  gtest_discover_tests(${program} TEST_PREFIX "${module}." DISCOVERY_MODE PRE_TEST
    # One value each: gtest_discover_tests takes lists apart and would misread what follows them.
    PROPERTIES LABELS unit TIMEOUT 300 ENVIRONMENT "MUSTER_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  add_dependencies(unit_tests ${program})
endfunction()

function(muster_module name)
  cmake_parse_arguments(ARG "TORCH" "" "FOLDERS;DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  file(GLOB headers CONFIGURE_DEPENDS *.h)
  foreach(folder IN LISTS ARG_FOLDERS)
    file(GLOB inside CONFIGURE_DEPENDS ${folder}/*.cc)
    list(APPEND sources ${inside})
    file(GLOB inside CONFIGURE_DEPENDS ${folder}/*.h)
    list(FILTER inside EXCLUDE REGEX "_testing\\.h$")
    install(FILES ${inside} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muster/${name}/${folder})
  endforeach()
  foreach(kind test benchmark)
    set(${kind}s ${sources})
    list(FILTER ${kind}s INCLUDE REGEX "_${kind}\\.cc$")
    set(torch_${kind}s ${${kind}s})
    list(FILTER ${kind}s EXCLUDE REGEX "_torch_${kind}\\.cc$")
    list(FILTER torch_${kind}s INCLUDE REGEX "_torch_${kind}\\.cc$")
  endforeach()
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|benchmark|fuzz)\\.cc$")
  list(FILTER headers EXCLUDE REGEX "_testing\\.h$")

  set(lib muster_${name})
  if(NOT sources)  # headers only
    add_library(${lib} INTERFACE)
    set(link INTERFACE)
  else()
    add_library(${lib} STATIC ${sources})
    target_link_libraries(${lib} PRIVATE $<BUILD_INTERFACE:muster_flags>)
    set(link PUBLIC)
  endif()
  add_library(Muster::${name} ALIAS ${lib})
  set_target_properties(${lib} PROPERTIES EXPORT_NAME ${name})
  list(TRANSFORM ARG_DEPS PREPEND muster_)
  target_link_libraries(${lib} ${link} ${ARG_DEPS} ${ARG_LIBS})
  target_include_directories(${lib} ${link}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(ARG_TORCH AND sources)
    muster_use_torch(${lib})
  endif()
  install(TARGETS ${lib} EXPORT MusterTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/muster/${name})

  if(MUSTER_TESTS AND tests)
    set(torch)
    if(ARG_TORCH)
      set(torch TORCH)
    endif()
    muster_unit_test(${lib}_test ${name} ${torch} ${tests})
  endif()
  if(MUSTER_TESTS AND MUSTER_TORCH AND torch_tests)
    muster_unit_test(${lib}_torch_test ${name} TORCH ${torch_tests})
  endif()
  if(MUSTER_BENCHMARKS AND benchmarks)
    add_executable(${lib}_benchmark ${benchmarks})
    target_link_libraries(${lib}_benchmark PRIVATE ${lib} muster_flags benchmark::benchmark_main)
    if(ARG_TORCH)
      muster_use_torch(${lib}_benchmark)
    endif()
  endif()
  if(MUSTER_BENCHMARKS AND MUSTER_TORCH AND torch_benchmarks)
    add_executable(${lib}_torch_benchmark ${torch_benchmarks})
    target_link_libraries(${lib}_torch_benchmark PRIVATE ${lib} muster_flags benchmark::benchmark_main)
    muster_use_torch(${lib}_torch_benchmark)
  endif()
  if(MUSTER_FUZZ)
    foreach(source IN LISTS fuzzers)
      get_filename_component(fuzzer ${source} NAME_WE)
      add_executable(${fuzzer} ${source})
      target_link_libraries(${fuzzer} PRIVATE ${lib} muster_flags)
      target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
      add_dependencies(fuzzers ${fuzzer})
    endforeach()
  endif()
endfunction()

# muster_module(NAME [TORCH] DEPS other modules... LIBS outside libraries...)
#
# One folder under muster/ is one library, muster_NAME. Files are picked up by their names, so adding
# one needs no edit here:
#   *_test.cc       one GoogleTest program for the module, muster_NAME_test
#   *_benchmark.cc  one Google Benchmark program, muster_NAME_benchmark
#   *_fuzz.cc       one libFuzzer program each (only with MUSTER_FUZZ=ON, clang)
#   the other *.cc  the library
# TORCH marks the modules that may see libtorch; the check of include directions
# (scripts/check_layers.py) holds the others to it.
function(muster_module name)
  cmake_parse_arguments(ARG "TORCH" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  file(GLOB headers CONFIGURE_DEPENDS *.h)
  set(tests ${sources})
  set(benchmarks ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benchmarks INCLUDE REGEX "_benchmark\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|benchmark|fuzz)\\.cc$")
  list(FILTER headers EXCLUDE REGEX "_testing\\.h$")

  set(lib muster_${name})
  add_library(${lib} STATIC ${sources})
  add_library(Muster::${name} ALIAS ${lib})
  set_target_properties(${lib} PROPERTIES EXPORT_NAME ${name})
  list(TRANSFORM ARG_DEPS PREPEND muster_)
  target_link_libraries(${lib} PUBLIC ${ARG_DEPS} ${ARG_LIBS} PRIVATE muster_flags)
  target_include_directories(${lib} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
  if(ARG_TORCH)
    target_link_libraries(${lib} PUBLIC Libtorch::Libtorch)
    target_precompile_headers(${lib} PRIVATE <torch/torch.h>)
  endif()
  install(TARGETS ${lib} EXPORT MusterTargets ARCHIVE DESTINATION lib)
  install(FILES ${headers} DESTINATION include/muster/${name})

  if(MUSTER_TESTS AND tests)
    add_executable(${lib}_test ${tests})
    target_link_libraries(${lib}_test PRIVATE ${lib} muster_flags GTest::gmock GTest::gtest_main)
    if(ARG_TORCH)
      target_precompile_headers(${lib}_test PRIVATE <torch/torch.h>)
    endif()
    gtest_discover_tests(${lib}_test TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
      PROPERTIES LABELS "unit;${name}" TIMEOUT 300
      ENVIRONMENT "MUSTER_SOURCE_DIR=${PROJECT_SOURCE_DIR};OMP_NUM_THREADS=1;MKL_NUM_THREADS=1")
  endif()
  if(MUSTER_BENCHMARKS AND benchmarks)
    add_executable(${lib}_benchmark ${benchmarks})
    target_link_libraries(${lib}_benchmark PRIVATE ${lib} muster_flags benchmark::benchmark_main)
  endif()
  if(MUSTER_FUZZ)
    foreach(source IN LISTS fuzzers)
      get_filename_component(fuzzer ${source} NAME_WE)
      add_executable(${fuzzer} ${source})
      target_link_libraries(${fuzzer} PRIVATE ${lib} muster_flags)
      target_link_options(${fuzzer} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()

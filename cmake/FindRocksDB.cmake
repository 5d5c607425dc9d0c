# Finds the system's RocksDB and defines RocksDB::rocksdb. Debian's package has a CMake file of its
# own, but that one wants the headers of every compression library, which nothing here uses.
include(FindPackageHandleStandardArgs)
find_path(RocksDB_INCLUDE_DIR rocksdb/db.h)
find_library(RocksDB_LIBRARY rocksdb)
mark_as_advanced(RocksDB_INCLUDE_DIR RocksDB_LIBRARY)
find_package_handle_standard_args(RocksDB REQUIRED_VARS RocksDB_LIBRARY RocksDB_INCLUDE_DIR)
if(RocksDB_FOUND AND NOT TARGET RocksDB::rocksdb)
  add_library(RocksDB::rocksdb UNKNOWN IMPORTED)
  set_target_properties(RocksDB::rocksdb PROPERTIES
    IMPORTED_LOCATION ${RocksDB_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RocksDB_INCLUDE_DIR})
endif()

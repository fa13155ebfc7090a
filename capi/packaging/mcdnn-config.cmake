# find_package(mcdnn) gives the target mcdnn::mcdnn.
get_filename_component(_mcdnn_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET mcdnn::mcdnn)
  add_library(mcdnn::mcdnn SHARED IMPORTED)
  set_target_properties(mcdnn::mcdnn PROPERTIES
    IMPORTED_LOCATION "${_mcdnn_prefix}/lib/libmcdnn.so.8"
    INTERFACE_INCLUDE_DIRECTORIES "${_mcdnn_prefix}/include")
endif()

set(mcdnn_FOUND TRUE)
unset(_mcdnn_prefix)

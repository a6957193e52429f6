# Debian's protobuf has no CMake package; CMake knows how to find it all the same.
include(FindProtobuf)
set(protobuf_FOUND ${Protobuf_FOUND})
